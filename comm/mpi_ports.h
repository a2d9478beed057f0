// MpiPorts: what MPI and its launcher listen on, from before MPI_Init until all ranks that will
// speak through MPI have spoken. From then on nobody needs those ports but strangers, whom Open MPI
// cannot bear: it listens on every interface, and half a handshake stops the rank that reads it.
#pragma once

#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/exchange.h"
#include "comm/handshake_watch.h"

namespace bulkhead {

class MpiPorts {
 public:
  // Before MPI_Init, on the thread that calls MPI.
  MpiPorts();
  MpiPorts(const MpiPorts&) = delete;
  MpiPorts& operator=(const MpiPorts&) = delete;

  // Collective, over the exchange that the group will use: makes all hosts connect to each other,
  // closes the ports of every rank and launcher to newcomers, and hangs up on connections that have
  // no rank at their other end. A launcher's port that has to stay open is a warning. Errors are
  // the exchange's.
  absl::Status CloseToStrangers(GroupExchange& exchange, absl::Duration timeout);

 private:
  std::set<int> inherited_;  // descriptors that listened before MPI did
  HandshakeWatch watch_;
};

}  // namespace bulkhead
