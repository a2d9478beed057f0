#include "runtime/service/answer_budget.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

absl::StatusOr<AnswerBudget::Hold> AnswerBudget::Admit(int64_t bytes) {
  std::optional<Hold> hold = bytes_.Take(bytes);
  if (hold.has_value()) return *std::move(hold);
  unread_.MakeRoom(bytes);
  return WhyNot(bytes, Use::kNewWork);
}

absl::Status AnswerBudget::Grow(Hold& hold, int64_t bytes, Use use) {
  if (hold.GrowTo(bytes, use)) return absl::OkStatus();
  unread_.MakeRoom(bytes - hold.bytes());
  return WhyNot(bytes, use);
}

absl::Status AnswerBudget::WhyNot(int64_t bytes, Use use) {
  const int64_t limit = bytes_.limit_bytes(use);
  const bool never = bytes > limit;
  const std::string why = absl::StrCat(
      "the answer may take ", bytes, " bytes; ",
      never ? absl::StrCat("all answers together have ", limit,
                           ": ask for fewer tokens or log probabilities, or start the server with "
                           "more host memory")
            : absl::StrCat("of the ", limit, " that all answers together have, other calls hold ",
                           "too many: try again later, or read answers faster"));
  absl::Status status = WithReason(
      never ? absl::OutOfRangeError(why) : absl::ResourceExhaustedError(why), reason::kAnswerBudget,
      {{"value", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}});
  return never ? status : WithRetryAfter(std::move(status), absl::Seconds(1));
}

}  // namespace bulkhead
