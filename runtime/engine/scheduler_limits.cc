#include "runtime/engine/scheduler_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kQueueRetry = absl::Seconds(1);  // a queue moves within a second

absl::Status AtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be at least ", least));
}

absl::Status Change(const char* name, int64_t value, int least, int sealed, int& limit) {
  if (value < least || value > sealed) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " ", value, " is outside [", least, ", ", sealed,
        "]: while it serves, a group can go no higher than it was started with; restart it with a "
        "larger one"));
  }
  limit = static_cast<int>(value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SchedulerLimits> Changed(const SchedulerLimits& sealed, SchedulerLimits now,
                                        const v1::SetLimitsRequest& change) {
  if (change.reset()) now = sealed;
  if (change.has_max_num_seqs()) {
    BH_RETURN_IF_ERROR(
        Change("max_num_seqs", change.max_num_seqs(), 1, sealed.max_num_seqs, now.max_num_seqs));
  }
  if (change.has_max_model_len()) {  // a one-token prompt and one generated token
    BH_RETURN_IF_ERROR(Change("max_model_len", change.max_model_len(), 2, sealed.max_model_len,
                              now.max_model_len));
  }
  if (change.has_max_num_queued_reqs()) {
    BH_RETURN_IF_ERROR(Change("max_num_queued_reqs", change.max_num_queued_reqs(), 0,
                              sealed.max_num_queued_reqs, now.max_num_queued_reqs));
  }
  return now;
}

absl::Status ValidateLimits(const SchedulerLimits& limits) {
  BH_RETURN_IF_ERROR(AtLeast("max_num_seqs", limits.max_num_seqs, 1));
  BH_RETURN_IF_ERROR(AtLeast("max_model_len", limits.max_model_len, 1));
  BH_RETURN_IF_ERROR(AtLeast("max_num_batched_tokens", limits.max_num_batched_tokens, 1));
  BH_RETURN_IF_ERROR(AtLeast("block_tokens", limits.block_tokens, 1));
  BH_RETURN_IF_ERROR(AtLeast("num_kv_blocks", limits.num_kv_blocks, 1));
  BH_RETURN_IF_ERROR(AtLeast("max_num_queued_reqs", limits.max_num_queued_reqs, 0));
  BH_RETURN_IF_ERROR(AtLeast("depth", limits.depth, 1));
  return absl::OkStatus();
}

int64_t MaxTotalTokens(const SchedulerLimits& limits, int64_t prompt_tokens, int64_t max_tokens) {
  return std::min<int64_t>(prompt_tokens + max_tokens, limits.max_model_len);
}

absl::Status CheckRequestFits(const SchedulerLimits& limits, int64_t prompt_tokens,
                              int64_t emitted_tokens, int64_t max_tokens) {
  if (prompt_tokens < 1) return absl::InvalidArgumentError("the prompt has no tokens");
  if (max_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens is ", max_tokens, "; it must not be negative"));
  }
  const int64_t given = prompt_tokens + emitted_tokens;
  // A resumed request may have emitted its maximum: it is told how it ended.
  const int64_t reserved_tokens = max_tokens == 0 || emitted_tokens > 0 ? 0 : 1;
  if (given + reserved_tokens > limits.max_model_len) {
    const std::string text =
        emitted_tokens == 0
            ? absl::StrCat("the prompt has ", prompt_tokens,
                           " tokens, which leaves no room for output within max_model_len ",
                           limits.max_model_len, "; shorten it to at most ",
                           limits.max_model_len - reserved_tokens)
            : absl::StrCat("the prompt's ", prompt_tokens, " tokens and the ", emitted_tokens,
                           " that were emitted already are more than max_model_len ",
                           limits.max_model_len);
    return WithReason(absl::InvalidArgumentError(text), reason::kPromptTooLong,
                      {{"prompt_tokens", absl::StrCat(prompt_tokens)},
                       {"max_model_len", absl::StrCat(limits.max_model_len)}});
  }
  const int64_t total = MaxTotalTokens(limits, prompt_tokens, max_tokens);
  const int64_t needed = limits.LeastBlocks(total);
  if (needed <= limits.num_kv_blocks) return absl::OkStatus();
  return WithReason(absl::OutOfRangeError(absl::StrCat(
                        "the request can need ", FormatCount(total), " tokens (prompt ",
                        FormatCount(prompt_tokens), ", max_tokens ", FormatCount(max_tokens),
                        "), which is ", FormatCount(needed), " KV blocks of ", limits.block_tokens,
                        " tokens; the cache has ", FormatCount(limits.num_kv_blocks), ", room for ",
                        FormatCount(limits.kv_tokens()), " tokens")),
                    reason::kKvBudget,
                    {{"needed_blocks", absl::StrCat(needed)},
                     {"rank_min_blocks", absl::StrCat(limits.num_kv_blocks)},
                     {"block_size", absl::StrCat(limits.block_tokens)}});
}

absl::Status CheckQueueHasRoom(const SchedulerLimits& limits, const QueueLoad& load) {
  const int64_t num_requests = load.num_running + load.num_waiting;
  if (num_requests < int64_t{limits.max_num_seqs} + limits.max_num_queued_reqs) {
    return absl::OkStatus();
  }
  return WithRetryAfter(
      WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              "the queue is full: ", num_requests, " requests run or wait; the limits are ",
              limits.max_num_seqs, " running (max_num_seqs) and ", limits.max_num_queued_reqs,
              " waiting (max_num_queued_reqs); try again later")),
          reason::kQueueFull,
          {{"running", absl::StrCat(load.num_running)},
           {"waiting", absl::StrCat(load.num_waiting)},
           {"limit", absl::StrCat(limits.max_num_queued_reqs)}}),
      kQueueRetry);
}

}  // namespace bulkhead
