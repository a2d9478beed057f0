// LeaderLink: messages between node leaders (the lowest rank of each node), the basis of every
// collective between nodes. Used by the leaders' main threads only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/wait.h"

namespace bulkhead {

// Messages of different kinds are independent: the control bus may run ahead of the sums.
enum class LinkKind : int { kExchange = 0, kBus = 1, kTensors = 2 };

inline constexpr int64_t kMaxLinkMessageBytes = int64_t{1} << 30;

struct Outgoing {
  int node = 0;
  const void* data = nullptr;
  int64_t bytes = 0;
};

// Destination of a message: rows of row_bytes, stride_bytes apart. The message must have exactly
// that size, unless `length` is given, which returns the size of a shorter one (single row only).
struct Incoming {
  int node = 0;
  void* data = nullptr;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t stride_bytes = 0;  // unused for a single row
  int64_t* length = nullptr;
};

class LeaderLink {
 public:
  virtual ~LeaderLink() = default;
  virtual int node() const = 0;
  virtual int num_nodes() const = 0;
  // Whether waits may spin before they yield and sleep.
  virtual void set_may_spin(bool may_spin) = 0;
  // Completes all of these sends and receives, each non-empty and at most kMaxLinkMessageBytes.
  // Messages of one kind between two nodes arrive in order. A send may block until the receive is
  // posted. An error is final for the link: DEADLINE_EXCEEDED with an empty message, the status the
  // group was aborted with, or INTERNAL when a message has an unexpected length.
  virtual absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                                absl::Span<const Incoming> receives,
                                int64_t deadline_ns = kNoDeadline) = 0;
};

}  // namespace bulkhead
