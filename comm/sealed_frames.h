// Sealed frames: short messages on a stream that only who holds the key can have sent, each once
// and in its order. Not secret: what they say (a heartbeat, why a group ends) may be read.
//
// On the wire: length of the text (u32), kind (u8), text, HMAC-SHA256 over the number of the frame,
// its kind and its text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

inline constexpr int kMacBytes = 32;
inline constexpr int kMaxFrameTextBytes = 4096;

// HMAC-SHA256, kMacBytes long.
std::string Mac(absl::string_view key, absl::string_view text);

// In a time that does not tell how much of them is equal.
bool SameMac(absl::string_view a, absl::string_view b);

// From the kernel's generator; dies without it.
std::string RandomBytes(int count);

enum class FrameKind : uint8_t {
  kBeat = 1,    // "this process lives"
  kAbort = 2,   // the group ends; the text says why
  kEnding = 3,  // the sender is about to leave in good order
};

struct Frame {
  FrameKind kind = FrameKind::kBeat;
  std::string text;
};

// One direction of a connection; each has a key of its own.
class FrameSealer {
 public:
  explicit FrameSealer(std::string key) : key_(std::move(key)) {}
  // `text` is cut to kMaxFrameTextBytes.
  std::string Seal(FrameKind kind, absl::string_view text);

 private:
  std::string key_;
  uint64_t sent_ = 0;
};

class FrameOpener {
 public:
  explicit FrameOpener(std::string key) : key_(std::move(key)) {}
  void Feed(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // True and the next frame, or false while it is not complete. DATA_LOSS when it was not sealed
  // with the key: the stream is then good for nothing.
  absl::StatusOr<bool> Next(Frame& frame);

 private:
  std::string key_;
  uint64_t opened_ = 0;
  std::string buffer_;
};

}  // namespace bulkhead
