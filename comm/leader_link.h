// LeaderLink: messages between the leaders of nodes, a node's leader being its lowest rank. Used by
// the leaders' main threads only. What every collective between nodes is made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/wait.h"

namespace bulkhead {

// Messages of different kinds never meet: the control bus may run ahead of the sums.
enum class LinkKind : int { kExchange = 0, kBus = 1, kTensors = 2 };
inline constexpr int kLinkKinds = 3;

inline constexpr int64_t kMaxLinkMessageBytes = int64_t{1} << 30;

struct Outgoing {
  int node = 0;
  const void* data = nullptr;
  int64_t bytes = 0;
};

// Where a message is put: rows of row_bytes, stride_bytes apart. It must be that long, unless
// `length` is there to be told a shorter one (of a single row).
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
  // Sends and receives all of these, none of them empty or larger than kMaxLinkMessageBytes.
  // Between two nodes messages of a kind arrive in the order in which they were sent. A send may
  // wait until the other side receives. An error is final for the link: DEADLINE_EXCEEDED without
  // words, what the group was aborted with, or INTERNAL when a message has another length than was
  // expected.
  virtual absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                                absl::Span<const Incoming> receives,
                                int64_t deadline_ns = kNoDeadline) = 0;
};

}  // namespace bulkhead
