// Connections between hosts. First both ends prove that they hold the group's key, without
// revealing it. Then sealed frames: authenticated short messages on a stream, protected against
// replay and reordering. Not encrypted: their content (heartbeats, abort reasons) is not secret.
//
// Wire format: text length (u32), kind (u8), text, HMAC-SHA256 over the frame number, kind and
// text.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace bulkhead {

inline constexpr int kMacBytes = 32;
inline constexpr int kMaxFrameTextBytes = 4096;

// HMAC-SHA256, kMacBytes long.
std::string Mac(absl::string_view key, absl::string_view text);

// Constant-time comparison.
bool SameMac(absl::string_view a, absl::string_view b);

// From the kernel's random generator; aborts if unavailable.
std::string RandomBytes(int count);

enum class FrameKind : uint8_t {
  kBeat = 1,    // heartbeat
  kAbort = 2,   // the group ends; the text is the reason
  kEnding = 3,  // the sender is about to shut down in order
};

struct Frame {
  FrameKind kind = FrameKind::kBeat;
  std::string text;
};

// One direction of a connection, with its own key.
class FrameSealer {
 public:
  explicit FrameSealer(std::string key) : key_(std::move(key)) {}
  // `text` is truncated to kMaxFrameTextBytes.
  std::string Seal(FrameKind kind, absl::string_view text);

 private:
  std::string key_;
  uint64_t sent_ = 0;
};

class FrameOpener {
 public:
  explicit FrameOpener(std::string key) : key_(std::move(key)) {}
  void Feed(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // True with the next frame, or false if it is incomplete. DATA_LOSS if its MAC is wrong: the
  // stream is then unusable.
  absl::StatusOr<bool> Next(Frame& frame);

 private:
  std::string key_;
  uint64_t opened_ = 0;
  std::string buffer_;
};

struct CallerIdentity {
  int rank = 0;             // of the caller
  std::string session_key;  // for this connection only
};

// Rank 0's side: UNAUTHENTICATED if the caller does not hold `key`.
absl::StatusOr<CallerIdentity> AuthenticateCaller(const Socket& socket, absl::string_view key,
                                                  int64_t deadline_ns);

struct Caller {
  CallerIdentity who;
  Socket socket;
};
// Rank 0's side for many callers: accepts each rank in `wanted` once, until all are connected or
// the deadline expires. Handshakes run concurrently, so a silent caller delays no other; all other
// connections are closed.
std::vector<Caller> AcceptCallers(const std::vector<ListeningSocket>& listeners,
                                  absl::string_view key, std::set<int> wanted, int64_t deadline_ns);

// The caller's side: returns the session key. UNAUTHENTICATED if the other end is not rank 0. The
// reply to a message sent by the deadline may arrive up to ten seconds later.
absl::StatusOr<std::string> AuthenticateTo(const Socket& socket, absl::string_view key, int rank,
                                           int64_t deadline_ns);

}  // namespace bulkhead
