// SchedulerLimits: what the whole group agreed on at start, and the two questions that can be asked
// of a request before it is queued. Pure arithmetic, safe on any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

enum class Admission {
  kReserve,     // blocks for the worst case are taken at admission: nothing is ever preempted
  kOptimistic,  // blocks are taken as the sequence grows; preempts by recomputation
};

enum class SchedulingPolicy {
  kFcfs,
  kPriority,  // higher Request::priority first, then first come
};

struct SchedulerLimits {
  int max_num_seqs = 0;            // sequences with a slot
  int max_model_len = 0;           // prompt and generated tokens of one sequence
  int max_num_batched_tokens = 0;  // tokens of one step; may be below max_num_seqs
  int block_tokens = 0;
  int64_t num_kv_blocks = 0;
  int max_num_queued_reqs = 0;        // beyond those that max_num_seqs lets run
  int64_t max_num_queued_tokens = 0;  // prompt tokens of requests that never ran yet
  Admission admission = Admission::kReserve;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool prefix_caching = false;  // the block pool has a PrefixCache
  int depth = 1;                // planned, uncommitted steps: 1 or 2
  bool pads_decodes = false;    // steps of one token for each sequence have PaddedDecodeRows
};

// The limits that an operator may tighten while the group serves, and widen again up to what was
// sealed at start: no memory follows them. They bind what is submitted or admitted from then on;
// what was accepted keeps what it was promised.
struct LiveLimits {
  int max_num_seqs = 0;
  int max_model_len = 0;
  int max_num_queued_reqs = 0;
  bool operator==(const LiveLimits&) const = default;
};

struct LiveLimitsChange {
  bool reset = false;  // first back to what was sealed
  std::optional<int64_t> max_num_seqs = std::nullopt;
  std::optional<int64_t> max_model_len = std::nullopt;
  std::optional<int64_t> max_num_queued_reqs = std::nullopt;
};

LiveLimits SealedLimits(const SchedulerLimits& limits);
// `limits` with the tighter ones in their place.
SchedulerLimits WithLiveLimits(SchedulerLimits limits, const LiveLimits& live);
// INVALID_ARGUMENT naming limit, value and what was sealed.
absl::StatusOr<LiveLimits> Changed(const SchedulerLimits& sealed, LiveLimits now,
                                   const LiveLimitsChange& change);

// INVALID_ARGUMENT naming the limit unless every number is one to schedule with.
absl::Status ValidateLimits(const SchedulerLimits& limits);

// The most tokens that a request can come to: prompt + max_tokens, capped by max_model_len.
int64_t MaxTotalTokens(const SchedulerLimits& limits, int64_t prompt_tokens, int64_t max_tokens);

// Whether an idle group could run the request to its end. INVALID_ARGUMENT when the prompt (with a
// resumed request's emitted tokens) leaves no room in max_model_len, OUT_OF_RANGE when the KV pool
// is too small. max_tokens 0 (prompt logits alone) needs no room behind the prompt.
absl::Status CheckRequestFits(const SchedulerLimits& limits, int64_t prompt_tokens,
                              int64_t emitted_tokens, int64_t max_tokens);

// Whether one more request may be queued. `num_requests`: all that are queued or running.
// RESOURCE_EXHAUSTED otherwise. A token backlog of 0 takes any prompt that fits.
absl::Status CheckQueueHasRoom(const SchedulerLimits& limits, int64_t num_requests,
                               int64_t queued_tokens, int64_t new_tokens);

}  // namespace bulkhead
