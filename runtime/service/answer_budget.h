// AnswerBudget: limits the total bytes of all answers that are unfinished or unsent, each from the
// admission of its call until gRPC is done with it. Refuses new work beyond the limit, and ends
// answers that are not read. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/service/byte_budget.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/host_counters.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/unread_answers.h"

namespace bulkhead {

class AnswerBudget {
 public:
  using Hold = ByteBudget::Hold;
  using Use = ByteBudget::Use;

  AnswerBudget(const HostQuotas& quotas, PeakCounter* counter, ErrorCounts* errors)
      : bytes_(quotas.answer_bytes, counter),
        unread_(errors, std::chrono::milliseconds(quotas.unread_answer_ms)) {}

  // For an answer of at most `bytes`. OUT_OF_RANGE if that exceeds the budget, RESOURCE_EXHAUSTED
  // if it is not available now, both with reason ANSWER_BUDGET; unread answers are then ended soon.
  absl::StatusOr<Hold> Admit(int64_t bytes);
  // RESOURCE_EXHAUSTED (ANSWER_BUDGET), with the hold unchanged.
  absl::Status Grow(Hold& hold, int64_t bytes, Use use);

  UnreadAnswers& unread() { return unread_; }

 private:
  absl::Status WhyNot(int64_t bytes, Use use);

  ByteBudget bytes_;
  UnreadAnswers unread_;
};

}  // namespace bulkhead
