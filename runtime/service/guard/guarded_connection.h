// GuardedConnection: one client's TCP connection, the guard's end of the socket pair whose other
// end the server has, and the bytes on their way between them. Used by the guard's thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/service/guard/connection_rules.h"

namespace bulkhead {

// Bytes from the client: a partial frame, and what was read after it.
inline constexpr size_t kMaxHeldFromClient = size_t{24} << 10;
inline constexpr size_t kMaxHeldFromServer = size_t{16} << 10;
// A client that does not read what was sent for this long is gone.
inline constexpr absl::Duration kMaxUnreadTime = absl::Seconds(60);

class GuardedConnection {
 public:
  // Owns both descriptors, which do not block.
  GuardedConnection(int client_fd, int server_fd, GuardTotals* totals, absl::Time now,
                    RoleSet roles = kNoRole);
  ~GuardedConnection();
  GuardedConnection(const GuardedConnection&) = delete;
  GuardedConnection& operator=(const GuardedConnection&) = delete;

  // Moves what can be moved now, once in each direction.
  void MoveToServer(absl::Time now);
  void MoveToClient(absl::Time now);
  void Tick(absl::Time now);
  // Sends GOAWAY to the client and closes the connection. `reason` is that of the rules or the
  // guard.
  void Close(const std::string& reason, absl::Time now);
  // The client has gone, or its connection is broken.
  void DropClient(absl::Time now);

  // Which of EPOLLIN and EPOLLOUT to wait for; the client's descriptor is -1 once it is closed.
  uint32_t client_events() const;
  uint32_t server_events() const;
  int client_fd() const { return client_fd_; }
  int server_fd() const { return server_fd_; }
  // Both sides are done.
  bool has_ended() const { return has_ended_; }
  // No bytes of the server wait here for a client that could take them.
  bool is_flushed() const;
  bool is_waiting() const { return client_fd_ >= 0 && rules_.is_waiting(); }
  const ConnectionRules& rules() const { return rules_; }
  absl::Time last_active() const { return last_active_; }

 private:
  void FeedRules(absl::string_view bytes, absl::Time now);
  void SendToServer(absl::string_view bytes);
  // Sends without waiting, keeps the rest in `*held`. False when the connection broke.
  bool Send(int fd, absl::string_view bytes, std::string* held);
  void SendToClient(absl::string_view bytes, absl::Time now);
  void ServerEnded();
  // Whether the client has taken enough of the guard's own frames to be read from.
  bool takes_refusals() const { return to_client_.size() <= kMaxHeldFromServer; }
  void CloseIfRulesSaySo(absl::Time now);

  GuardTotals* const totals_;
  ConnectionRules rules_;
  int client_fd_;
  int server_fd_;
  std::string from_client_;  // not examined yet
  std::string to_server_;
  std::string to_client_;
  absl::Time last_active_;
  absl::Time unread_since_ = absl::InfiniteFuture();
  absl::Time dropped_at_ = absl::InfiniteFuture();
  bool client_ended_ = false;  // it sends no more
  bool told_server_ = false;   // that the client ended
  bool server_takes_ = true;   // until it has closed its end, from which more may yet be read
  bool server_ended_ = false;
  bool has_ended_ = false;
};

}  // namespace bulkhead
