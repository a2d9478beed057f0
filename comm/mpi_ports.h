// MpiPorts: the listening ports of MPI and its launcher, from before MPI_Init until all
// communicating ranks are connected. After that only strangers would use them, and Open MPI does
// not tolerate strangers: it listens on every interface, and half a handshake blocks the rank that
// reads it.
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

  // Collective, over the group's exchange: connects all hosts to each other, closes the ports of
  // every rank and launcher to new connections, and closes connections without a rank at the other
  // end. A launcher's port that remains open is a warning. Errors are the exchange's.
  absl::Status CloseToStrangers(GroupExchange& exchange, absl::Duration timeout);

 private:
  std::set<int> inherited_;  // descriptors that were listening before MPI started
  HandshakeWatch watch_;
};

}  // namespace bulkhead
