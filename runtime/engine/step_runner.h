// StepRunner: runs one numbered StepPlan on this rank's shard. The only seam between engine/ and
// model/.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bulkhead/internal/step_plan.pb.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// A token id in a plan that stands for what the newest earlier step drew for the slot.
inline constexpr TokenId kLastSampled = -1;

// What rank 0 does with the logits of one sequence of a plan; never sent to other ranks.
struct SampleRow {
  int seq_index = 0;  // of the plan's sequences; its last row of logits is sampled
  SamplingParams sampling;
  int64_t position =
      0;  // absolute position of the token that is drawn: with the seed, its randomness
  std::vector<TokenId> banned;  // ids that must not be drawn (before min_tokens)
  std::optional<int> num_logprobs;
};

// Rows of prompt logits that a sequence of the plan wants handed out: all of its rows in this step
// (num_logits == num_tokens), the first of them at the plan's start_position.
struct PromptLogitsRow {
  int seq_index = 0;
  LogitsSink* sink = nullptr;
};

struct Step {
  internal::StepPlan plan;
  std::vector<SampleRow> samples;              // rank 0 only, ascending seq_index
  std::vector<PromptLogitsRow> prompt_logits;  // rank 0 only, ascending seq_index
};

// What a step came to on rank 0. One request's failure (logits that are no numbers, a sink that
// cannot write) is its own entry: that request ends with it and the others go on.
struct StepResult {
  std::vector<absl::StatusOr<GeneratedToken>> samples;  // parallel to Step::samples
  std::vector<absl::Status> prompt_logits;              // parallel to Step::prompt_logits
};

// Steps are submitted in the order of their plans and collected in the same order. Every rank of a
// group submits and collects in the same order, and on every rank but 0 `samples` and
// `prompt_logits` are empty, and so is what is collected. An error of either call is final for the
// group: UNAVAILABLE when a rank is lost, INTERNAL when the plan oversteps this rank's sealed
// arenas (a bug of the coordinator: exit code 70).
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // How many steps may be submitted and not collected: 1 where steps are computed by the thread
  // that submits them, 2 where a device computes one while the next is planned.
  virtual int depth() const { return 1; }
  // Collective. Begins a step behind all that were submitted.
  virtual absl::Status Submit(Step step) = 0;
  // Collective. Waits until the oldest step that was not collected has ended.
  virtual absl::StatusOr<StepResult> Collect() = 0;
};

// One step from beginning to end, where none is in flight.
inline absl::StatusOr<StepResult> RunStep(StepRunner& runner, Step step) {
  if (absl::Status status = runner.Submit(std::move(step)); !status.ok()) return status;
  return runner.Collect();
}

}  // namespace bulkhead
