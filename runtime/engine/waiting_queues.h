// WaitingQueues: the scheduler's queues of short and of long prompts, each ordered by precedence
// (priority, then arrival). O(log n) to add and remove, O(1) for the head.
#pragma once

#include <cstdint>
#include <set>

#include "runtime/engine/sequence.h"

namespace bulkhead {

// The head of the long-prompt queue counts as having arrived this many steps later.
inline constexpr uint64_t kLongQueueAgeSteps = 32;

// Whether `a` is served before `b` within the same queue.
bool Precedes(const Sequence& a, const Sequence& b);

class WaitingQueues {
 public:
  // Only the heads of the queues keep the blocks of their prefix: only they are looked up again.
  void Add(Sequence& sequence);
  void Remove(Sequence& sequence);

  Sequence* ShortHead() const { return short_.empty() ? nullptr : *short_.begin(); }
  Sequence* LongHead() const { return long_.empty() ? nullptr : *long_.begin(); }
  // Whether the long head goes before the short head; both must exist.
  bool LongGoesFirst() const;

  int size() const { return static_cast<int>(short_.size() + long_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  struct Order {
    bool operator()(const Sequence* a, const Sequence* b) const { return Precedes(*a, *b); }
  };

  std::set<Sequence*, Order> short_;
  std::set<Sequence*, Order> long_;
  int64_t tokens_ = 0;
};

}  // namespace bulkhead
