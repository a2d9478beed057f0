#include "runtime/service/guard/guarded_connection.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace bulkhead {
namespace {

// The server may take this long to notice that its client has gone.
constexpr absl::Duration kMaxServerEndTime = absl::Seconds(5);

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

GuardedConnection::GuardedConnection(int client_fd, int server_fd, GuardTotals* totals,
                                     absl::Time now, RoleSet roles)
    : totals_(totals),
      rules_(totals, now, roles),
      client_fd_(client_fd),
      server_fd_(server_fd),
      last_active_(now) {}

GuardedConnection::~GuardedConnection() {
  if (client_fd_ >= 0) close(client_fd_);
  close(server_fd_);
}

void GuardedConnection::MoveToServer(absl::Time now) {
  if (client_fd_ < 0 || !server_takes_) return;
  if (!to_server_.empty()) SendToServer(std::exchange(to_server_, {}));
  if (!to_server_.empty() || !server_takes_ || !takes_refusals()) return;
  if (rules_.is_waiting() || client_ended_) {
    FeedRules({}, now);
  } else {
    char bytes[kMaxHeldFromClient];
    const ssize_t got =
        recv(client_fd_, bytes, kMaxHeldFromClient - from_client_.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (!WouldBlock()) DropClient(now);
      return;
    }
    client_ended_ = got == 0;
    last_active_ = now;
    FeedRules(absl::string_view(bytes, got), now);
  }
  if (client_fd_ < 0 || !server_takes_ || !client_ended_ || rules_.is_waiting()) return;
  if (to_server_.empty() && !std::exchange(told_server_, true)) shutdown(server_fd_, SHUT_WR);
}

void GuardedConnection::FeedRules(absl::string_view bytes, absl::Time now) {
  std::string out;
  if (from_client_.empty()) {
    const size_t taken = rules_.FromClient(bytes, now, &out);
    from_client_.assign(bytes.data() + taken, bytes.size() - taken);
  } else {
    from_client_.append(bytes.data(), bytes.size());
    from_client_.erase(0, rules_.FromClient(from_client_, now, &out));
  }
  if (from_client_.empty()) from_client_ = std::string();  // an idle connection holds nothing
  SendToServer(out);
  if (rules_.has_frames_to_client()) SendToClient({}, now);
  CloseIfRulesSaySo(now);
}

void GuardedConnection::MoveToClient(absl::Time now) {
  if (client_fd_ >= 0) {
    const size_t held = to_client_.size();
    const std::string bytes = std::exchange(to_client_, {});
    if (!Send(client_fd_, bytes, &to_client_)) return DropClient(now);
    if (to_client_.size() < held) unread_since_ = to_client_.empty() ? absl::InfiniteFuture() : now;
    if (!to_client_.empty()) return;
  }
  if (server_ended_) return ServerEnded();
  char bytes[kMaxHeldFromServer];
  const ssize_t got = recv(server_fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) return ServerEnded();
  if (client_fd_ >= 0) SendToClient(absl::string_view(bytes, got), now);
}

void GuardedConnection::SendToClient(absl::string_view bytes, absl::Time now) {
  const std::string out = rules_.FromServer(bytes, now);
  if (!to_client_.empty()) {
    to_client_ += out;
  } else if (!Send(client_fd_, out, &to_client_)) {
    return DropClient(now);
  }
  if (!to_client_.empty() && unread_since_ == absl::InfiniteFuture()) unread_since_ = now;
}

void GuardedConnection::Tick(absl::Time now) {
  if (client_fd_ < 0) {
    has_ended_ = has_ended_ || now - dropped_at_ > kMaxServerEndTime;
    return;
  }
  rules_.Tick(now, to_server_.empty() && !rules_.is_waiting() && takes_refusals(), &to_server_);
  MoveToServer(now);
  if (client_fd_ < 0) return;
  if (rules_.has_frames_to_client()) SendToClient({}, now);
  if (client_fd_ >= 0 && now - unread_since_ > kMaxUnreadTime) Close("UNREAD", now);
  CloseIfRulesSaySo(now);
}

void GuardedConnection::CloseIfRulesSaySo(absl::Time now) {
  if (client_fd_ >= 0 && !rules_.close_reason().empty()) Close(rules_.close_reason(), now);
}

void GuardedConnection::Close(const std::string& reason, absl::Time now) {
  if (client_fd_ < 0) return;
  totals_->counters->closed.AddReason(reason);
  if (rules_.close_reason().empty() && to_client_.empty() && rules_.at_server_border()) {
    to_client_ = rules_.GoAway(Http2Error::kNoError);
    Send(client_fd_, std::exchange(to_client_, {}), &to_client_);
  }
  DropClient(now);
}

void GuardedConnection::DropClient(absl::Time now) {
  if (client_fd_ < 0) return;
  close(std::exchange(client_fd_, -1));
  rules_.End(now);
  from_client_ = to_server_ = to_client_ = std::string();
  dropped_at_ = now;
  if (!std::exchange(told_server_, true)) shutdown(server_fd_, SHUT_WR);
  if (server_ended_) has_ended_ = true;
}

void GuardedConnection::ServerEnded() {
  server_ended_ = true;
  if (client_fd_ < 0 || to_client_.empty()) has_ended_ = true;
}

void GuardedConnection::SendToServer(absl::string_view bytes) {
  if (!Send(server_fd_, bytes, &to_server_)) {
    server_takes_ = false;
    to_server_ = from_client_ = std::string();
  }
}

bool GuardedConnection::Send(int fd, absl::string_view bytes, std::string* held) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && !WouldBlock()) return false;
    if (sent < 0) break;
    bytes.remove_prefix(sent);
  }
  held->append(bytes.data(), bytes.size());
  return true;
}

uint32_t GuardedConnection::client_events() const {
  const bool reads = !client_ended_ && server_takes_ && to_server_.empty() &&
                     !rules_.is_waiting() && takes_refusals();
  return (reads ? EPOLLIN : 0U) | (to_client_.empty() ? 0U : EPOLLOUT);
}

uint32_t GuardedConnection::server_events() const {
  const bool reads = !server_ended_ && to_client_.empty();
  return (reads ? EPOLLIN : 0U) | (to_server_.empty() ? 0U : EPOLLOUT);
}

bool GuardedConnection::is_flushed() const {
  int waiting = 0;
  if (client_fd_ < 0 || server_ended_) return to_client_.empty();
  return to_client_.empty() && (ioctl(server_fd_, FIONREAD, &waiting) != 0 || waiting == 0);
}

}  // namespace bulkhead
