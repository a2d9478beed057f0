// AnswerBudget: the bytes of all answers together that are not finished or not sent, each from the
// admission of its call until gRPC is done with it. Refuses new work beyond it, and ends answers
// that nobody reads. Thread-safe.
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

  // For an answer of at most `bytes`. OUT_OF_RANGE when it could never have so many,
  // RESOURCE_EXHAUSTED when it does not have them now, both ANSWER_BUDGET. Answers that nobody
  // reads are ended then, soon.
  absl::StatusOr<Hold> Admit(int64_t bytes);
  // RESOURCE_EXHAUSTED (ANSWER_BUDGET), and the hold as it was.
  absl::Status Grow(Hold& hold, int64_t bytes, Use use);

  UnreadAnswers& unread() { return unread_; }

 private:
  absl::Status WhyNot(int64_t bytes, Use use);

  ByteBudget bytes_;
  UnreadAnswers unread_;
};

}  // namespace bulkhead
