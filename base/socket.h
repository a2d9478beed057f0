// TCP sockets between the hosts of a group: never blocking, every wait with a deadline.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// This host's addresses that others may reach it by, numeric: of interfaces that are up, loopback
// only where there is no other. `include` (empty: all) is a list such as Open MPI's
// btl_tcp_if_include: "eth0,10.1.0.0/16". INVALID_ARGUMENT when it leaves nothing.
absl::StatusOr<std::vector<std::string>> OwnAddresses(const std::string& include);

struct ListeningSocket {
  Socket socket;
  std::string address;
  int port = 0;
};
// Listens on a free port of that address and of no other.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& address);

// A connection that has come, or a closed socket when none has by the deadline.
Socket AcceptFrom(const std::vector<ListeningSocket>& listeners, int64_t deadline_ns);

absl::StatusOr<Socket> ConnectTo(const std::string& address, int port, int64_t deadline_ns);

// All of it, or UNAVAILABLE or DEADLINE_EXCEEDED.
absl::Status SendAll(const Socket& socket, absl::string_view bytes, int64_t deadline_ns);
absl::StatusOr<std::string> ReceiveExactly(const Socket& socket, int64_t bytes,
                                           int64_t deadline_ns);

}  // namespace bulkhead
