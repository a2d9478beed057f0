// TlsConnection: one client's TCP connection with TLS, the terminator's end of the socket pair
// whose other end a front end has, and the bytes on their way between them: at most a record in
// each direction. Used by the terminator's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

// Maximum time from a client's connection until the handshake is done.
inline constexpr absl::Duration kMaxHandshakeTime = absl::Seconds(10);
// Maximum time until the client has taken what the front end sent before it closed.
inline constexpr absl::Duration kMaxLastBytesTime = absl::Seconds(5);

class TlsConnection {
 public:
  // Owns the descriptor, which does not block.
  TlsConnection(TlsContext::Session session, int client_fd, std::string address, absl::Time now);
  ~TlsConnection();
  TlsConnection(const TlsConnection&) = delete;
  TlsConnection& operator=(const TlsConnection&) = delete;

  // Once the handshake is done: owns its end of the socket pair, which does not block.
  void Open(int inner_fd);
  // Continues the handshake, or moves what can be moved now, once in each direction.
  void Move(absl::Time now);
  // The front end has closed its end: what it sent goes to the client, nothing comes back.
  void InnerClosed(absl::Time now);
  void Close();
  void Tick(absl::Time now);

  // Events to wait for; 0: epoll must not watch the descriptor.
  uint32_t client_events() const;
  uint32_t inner_events() const;
  int client_fd() const { return client_fd_; }
  int inner_fd() const { return inner_fd_; }  // -1 before Open
  bool handshake_done() const { return handshake_done_; }
  bool is_closed() const { return client_fd_ < 0; }
  // No bytes of the front end wait here.
  bool is_flushed() const;
  const std::string& address() const { return address_; }
  const SSL* ssl() const { return session_.get(); }
  absl::Time begun() const { return begun_; }
  // Why it was closed: "TLS_HANDSHAKE", "TLS_TIMEOUT"; empty: it ended normally.
  const std::string& close_reason() const { return close_reason_; }

 private:
  bool is_inner_closed() const { return inner_closed_ != absl::InfiniteFuture(); }
  void Shake();
  void MoveToInner();
  void MoveToClient();
  void SendCloseNotify();
  // Sets what an operation of OpenSSL that returned `result` waits for, EPOLLIN or EPOLLOUT, which
  // may be the opposite of its own direction; false if it has failed.
  bool WaitsFor(int result, uint32_t* event);

  TlsContext::Session session_;
  int client_fd_;
  int inner_fd_ = -1;
  const std::string address_;
  const absl::Time begun_;
  std::string to_inner_;
  std::string to_client_;
  absl::Time inner_closed_ = absl::InfiniteFuture();
  std::string close_reason_;
  // Events that the last Move's read (or handshake) and write wait for; 0: none.
  uint32_t read_waits_for_ = 0;
  uint32_t write_waits_for_ = 0;
  bool handshake_done_ = false;
  bool client_ended_ = false;
  bool told_inner_ = false;   // that the client ended
  bool inner_ended_ = false;  // it sends no more
  bool close_notify_sent_ = false;
};

}  // namespace bulkhead
