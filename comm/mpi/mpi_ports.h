// MpiPorts: the listening ports of MPI and its launcher, from before MPI_Init until all
// communicating ranks are connected. After that only external connections would use them, and Open
// MPI does not tolerate those: it listens on every interface, and an incomplete handshake blocks
// the rank that reads it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/periodic_thread.h"
#include "comm/exchange.h"

namespace bulkhead {

// Open MPI reads the handshake of any incoming connection without a timeout, so that an external
// connection that sends only part of one blocks the thread that calls MPI. While this exists, such
// connections are shut down.
class HandshakeWatch {
 public:
  // Watches the calling thread: the one that calls MPI.
  HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;
  ~HandshakeWatch();

 private:
  struct Wait {
    int fd = -1;
    std::string remote;
  };
  std::optional<Wait> CurrentWait() const;
  void Look();

  const pid_t watched_;
  // Owned by thread_ until it has ended.
  Wait last_;
  int looks_ = 0;
  int closed_ = 0;  // connections
  std::optional<PeriodicThread> thread_;
};

class MpiPorts {
 public:
  // Before MPI_Init, on the thread that calls MPI.
  MpiPorts();
  MpiPorts(const MpiPorts&) = delete;
  MpiPorts& operator=(const MpiPorts&) = delete;

  // Collective, over the group's exchange: connects all hosts to each other, closes the ports of
  // every rank and launcher to new connections, and closes connections without a rank at the other
  // end. A launcher's port that remains open is a warning. Errors are the exchange's.
  absl::Status RejectExternalConnections(GroupExchange& exchange, absl::Duration timeout);

 private:
  std::set<int> inherited_;  // descriptors that were listening before MPI started
  HandshakeWatch watch_;
};

}  // namespace bulkhead
