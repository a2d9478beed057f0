// Non-blocking TCP sockets between the hosts of a group; every wait has a deadline.
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

// This host's numeric addresses that other hosts can reach: of interfaces that are up; loopback
// only if there is no other. `include` (empty: all) has the format of Open MPI's
// btl_tcp_if_include: "eth0,10.1.0.0/16". INVALID_ARGUMENT if no address remains.
absl::StatusOr<std::vector<std::string>> OwnAddresses(const std::string& include);

struct ListeningSocket {
  Socket socket;
  std::string address;
  int port = 0;
};
// Listens on a free port of that address only.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& address);

// An accepted connection, or a closed socket if none arrives before the deadline.
Socket AcceptFrom(const std::vector<ListeningSocket>& listeners, int64_t deadline_ns);

absl::StatusOr<Socket> ConnectTo(const std::string& address, int port, int64_t deadline_ns);

// Sends all bytes, or UNAVAILABLE or DEADLINE_EXCEEDED.
absl::Status SendAll(const Socket& socket, absl::string_view bytes, int64_t deadline_ns);
absl::StatusOr<std::string> ReceiveExactly(const Socket& socket, int64_t bytes,
                                           int64_t deadline_ns);

}  // namespace bulkhead
