#include "runtime/service/tls/tls_connection.h"

#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace bulkhead {
namespace {

// Maximum payload of a record, so that OpenSSL never holds bytes that epoll does not report.
constexpr size_t kRecordBytes = 16384;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// An idle connection holds nothing.
void EraseFront(size_t bytes, std::string* text) {
  text->erase(0, bytes);
  if (text->empty()) *text = std::string();
}

}  // namespace

TlsConnection::TlsConnection(TlsContext::Session session, int client_fd, std::string address,
                             absl::Time now)
    : session_(std::move(session)),
      client_fd_(client_fd),
      address_(std::move(address)),
      begun_(now) {}

TlsConnection::~TlsConnection() { Close(); }

void TlsConnection::Open(int inner_fd) { inner_fd_ = inner_fd; }

void TlsConnection::Close() {
  session_ = nullptr;
  if (client_fd_ >= 0) close(std::exchange(client_fd_, -1));
  if (inner_fd_ >= 0) close(std::exchange(inner_fd_, -1));
  to_inner_ = to_client_ = std::string();
}

bool TlsConnection::WaitsFor(int result, uint32_t* event) {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      *event = EPOLLIN;
      return true;
    case SSL_ERROR_WANT_WRITE:
      *event = EPOLLOUT;
      return true;
    default:
      ERR_clear_error();
      return false;
  }
}

void TlsConnection::Move(absl::Time now) {
  if (is_closed()) return;
  read_waits_for_ = write_waits_for_ = 0;
  if (!handshake_done_) return Shake();
  if (inner_fd_ < 0) return;  // not given to the front end yet
  if (!is_inner_closed()) MoveToInner();
  // epoll reports nothing more about a closed end.
  do {
    if (!is_closed()) MoveToClient();
  } while (!is_closed() && is_inner_closed() && to_client_.empty() && !inner_ended_);
  if (is_closed()) return;
  const bool has_ended = close_notify_sent_ && to_client_.empty() && to_inner_.empty();
  if (has_ended && (client_ended_ || is_inner_closed())) Close();
  if (now - inner_closed_ > kMaxLastBytesTime) Close();
}

void TlsConnection::Shake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(session_.get());
  if (result == 1) {
    handshake_done_ = true;
  } else if (!WaitsFor(result, &read_waits_for_)) {
    close_reason_ = "TLS_HANDSHAKE";
    Close();  // OpenSSL has sent the alert
  }
}

void TlsConnection::MoveToInner() {
  if (to_inner_.empty() && !client_ended_) {
    char bytes[kRecordBytes];
    ERR_clear_error();
    const int got = SSL_read(session_.get(), bytes, sizeof(bytes));
    if (got > 0) {
      to_inner_.assign(bytes, got);
    } else if (SSL_get_error(session_.get(), got) == SSL_ERROR_ZERO_RETURN) {
      client_ended_ = true;
    } else if (!WaitsFor(got, &read_waits_for_)) {
      return Close();
    }
  }
  while (!to_inner_.empty()) {
    const ssize_t sent =
        send(inner_fd_, to_inner_.data(), to_inner_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && WouldBlock()) return;
    if (sent < 0) {  // the front end reads no more; it may still send
      to_inner_ = std::string();
      break;
    }
    EraseFront(sent, &to_inner_);
  }
  if (client_ended_ && !std::exchange(told_inner_, true)) shutdown(inner_fd_, SHUT_WR);
}

void TlsConnection::MoveToClient() {
  if (to_client_.empty() && !inner_ended_) {
    char bytes[kRecordBytes];
    const ssize_t got = recv(inner_fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) to_client_.assign(bytes, got);
    if (got == 0 || (got < 0 && !WouldBlock())) inner_ended_ = true;
  }
  while (!to_client_.empty()) {
    ERR_clear_error();
    const int sent =
        SSL_write(session_.get(), to_client_.data(), static_cast<int>(to_client_.size()));
    if (sent <= 0) {
      if (!WaitsFor(sent, &write_waits_for_)) Close();
      return;
    }
    EraseFront(sent, &to_client_);
  }
  if (inner_ended_ && !close_notify_sent_) SendCloseNotify();
}

// The client sees that nothing is missing; its input is still read until it also ends.
void TlsConnection::SendCloseNotify() {
  ERR_clear_error();
  const int result = SSL_shutdown(session_.get());
  if (result < 0 && WaitsFor(result, &write_waits_for_)) return;  // for room; call again
  close_notify_sent_ = true;
  shutdown(client_fd_, SHUT_WR);
}

void TlsConnection::InnerClosed(absl::Time now) {
  inner_closed_ = std::min(inner_closed_, now);
  to_inner_ = std::string();
  Move(now);
}

void TlsConnection::Tick(absl::Time now) {
  if (is_closed()) return;
  if (!handshake_done_ && now - begun_ > kMaxHandshakeTime) {
    close_reason_ = "TLS_TIMEOUT";
    Close();
  } else if (now - inner_closed_ > kMaxLastBytesTime) {
    Close();
  }
}

uint32_t TlsConnection::client_events() const {
  const bool reads =
      !handshake_done_ || (!client_ended_ && !is_inner_closed() && to_inner_.empty());
  // Only the awaited events: another one would be reported again at once, to no effect.
  return (read_waits_for_ != 0 ? read_waits_for_ : reads ? EPOLLIN : 0U) | write_waits_for_;
}

uint32_t TlsConnection::inner_events() const {
  if (is_inner_closed()) return 0;
  const bool reads = !inner_ended_ && to_client_.empty();
  return EPOLLHUP | (reads ? EPOLLIN : 0U) | (to_inner_.empty() ? 0U : EPOLLOUT);
}

bool TlsConnection::is_flushed() const {
  int waiting = 0;
  if (is_closed() || inner_fd_ < 0) return true;
  return to_client_.empty() && (ioctl(inner_fd_, FIONREAD, &waiting) != 0 || waiting == 0);
}

}  // namespace bulkhead
