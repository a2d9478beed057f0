#include "runtime/engine/waiting_queues.h"

#include "base/check.h"

namespace bulkhead {

bool Precedes(const Sequence& a, const Sequence& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.arrival < b.arrival;
}

void WaitingQueues::Add(Sequence& sequence) {
  auto& queue = sequence.is_long ? long_ : short_;
  Sequence* behind = queue.empty() ? nullptr : *queue.begin();
  BH_CHECK(queue.insert(&sequence).second);
  if (*queue.begin() != &sequence) behind = &sequence;
  if (behind != nullptr) behind->prefix = {};
  tokens_ += static_cast<int64_t>(sequence.tokens.size());
}

void WaitingQueues::Remove(Sequence& sequence) {
  BH_CHECK((sequence.is_long ? long_ : short_).erase(&sequence) == 1);
  tokens_ -= static_cast<int64_t>(sequence.tokens.size());
}

bool WaitingQueues::LongGoesFirst() const {
  const Sequence& s = **short_.begin();
  const Sequence& l = **long_.begin();
  if (s.priority != l.priority) return l.priority > s.priority;
  return l.enqueue_step + kLongQueueAgeSteps < s.enqueue_step;
}

}  // namespace bulkhead
