// SchedulerLimits: the limits agreed on by the whole group at start, and the checks of a request
// before it is queued. Pure arithmetic, safe on any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/limits.h"
#include "runtime/engine/drafts.h"

namespace bulkhead {

namespace v1 {
class SetLimitsRequest;
}

enum class Admission {
  kReserve,     // takes blocks for the worst case at admission: never preempts
  kOptimistic,  // takes blocks as the sequence grows; preempts by recomputation
};

enum class SchedulingPolicy {
  kFcfs,
  kPriority,  // higher Request::priority first, then first come
};

struct SchedulerLimits : Limits {
  int max_num_queued_reqs = 0;  // in addition to max_num_seqs running ones
  Admission admission = Admission::kReserve;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool prefix_caching = false;  // the block pool has a PrefixCache
  // Recurrent states can be kept at multiples of this many positions; 0: the model has no states.
  int state_tokens = 0;
  bool pads_decodes = false;    // decode-only steps have PaddedDecodeRows rows
  bool shares_samples = false;  // plans say how rows are sampled: every rank samples a part
  DraftOptions drafts = {};     // a draft model needs depth 1

  int num_snapshots() const { return prefix_caching && state_tokens > 0 ? max_num_seqs : 0; }
  bool operator==(const SchedulerLimits&) const = default;
};

// Applies `change` to limits that an operator may lower while the group serves and raise again up
// to the sealed values; no memory depends on them. They apply to requests submitted or admitted
// afterwards; accepted requests are not affected. INVALID_ARGUMENT names the limit, the value and
// the sealed value.
absl::StatusOr<SchedulerLimits> Changed(const SchedulerLimits& sealed, SchedulerLimits now,
                                        const v1::SetLimitsRequest& change);

// INVALID_ARGUMENT naming the limit unless every value is valid.
absl::Status ValidateLimits(const SchedulerLimits& limits);

// Maximum number of tokens of a request: prompt + max_tokens, capped by max_model_len.
int64_t MaxTotalTokens(const SchedulerLimits& limits, int64_t prompt_tokens, int64_t max_tokens);

// Whether an idle group could complete the request. INVALID_ARGUMENT if the prompt leaves no room
// in max_model_len, or not enough for a resumed request's emitted tokens; OUT_OF_RANGE if the KV
// pool is too small. max_tokens 0 (prompt logits only) needs no room after the prompt.
absl::Status CheckRequestFits(const SchedulerLimits& limits, int64_t prompt_tokens,
                              int64_t emitted_tokens, int64_t max_tokens);

struct QueueLoad {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
};

// Whether one more request may be queued; RESOURCE_EXHAUSTED (QUEUE_FULL) otherwise. The number of
// requests bounds their tokens: each has at most max_model_len.
absl::Status CheckQueueHasRoom(const SchedulerLimits& limits, const QueueLoad& load);

}  // namespace bulkhead
