// StepRunner: runs one numbered StepPlan on this rank's shard. The only interface between engine/
// and model/.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bulkhead/internal/step_plan.pb.h"
#include "memory/matrix.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// A token id in a plan that stands for the last token sampled for the slot.
inline constexpr TokenId kLastSampled = -1;
// A token id that stands for a row of Step::given_rows. In no rank's table: lookups give zeros.
inline constexpr TokenId kGivenRow = std::numeric_limits<TokenId>::max();

// Embeddings of consecutive tokens of a step that replace the table's; not sent to other ranks,
// which get them through the sum over the vocabulary's parts.
struct GivenRows {
  int64_t first_token = 0;  // among the step's tokens
  ConstMatrixView rows;     // [n, D] f32 in host memory, valid until the step is collected
};

class LogitsProcessor;

// How a row of logits is sampled, on rank 0; other ranks know only what shared_samples.h sends.
struct SampleRow {
  int seq_index = 0;  // in the plan's sequences
  SamplingParams sampling;
  // Absolute position of the sampled token, one after the token whose logits it is sampled from;
  // with the seed it determines the randomness.
  int64_t position = 0;
  std::vector<TokenId> banned;  // ids that must not be sampled (before min_tokens)
  std::optional<int> num_logprobs;
  // Null: logits are sampled unchanged. Valid until the step is collected.
  const LogitsProcessor* logits = nullptr;
  // Draft tokens between the committed tokens and this row; valid until the step is collected. If
  // the last one differs from the sample at its position, this row's result is ignored.
  absl::Span<const TokenId> drafted = {};
};

// Prompt logits requested by a sequence of the plan: all of its rows in this step (num_logits ==
// num_tokens), starting at the plan's start_position.
struct PromptLogitsRow {
  int seq_index = 0;
  LogitsSink* sink = nullptr;
};

// The final norm's output for a sequence's last token in this step, whose logits are also computed
// (num_logits > 0).
struct HiddenStateRow {
  int seq_index = 0;
  std::vector<float>* out = nullptr;  // resized to [D]
};

struct Step {
  internal::StepPlan plan;
  std::vector<SampleRow> samples;              // rank 0 only, ascending seq_index, then position
  std::vector<PromptLogitsRow> prompt_logits;  // rank 0 only, ascending seq_index
  std::vector<HiddenStateRow> hidden_states;   // rank 0 only, ascending seq_index
  std::vector<GivenRows> given_rows;           // rank 0 only, one row for each kGivenRow
};

// The result of a step on rank 0. A failure of one request (non-finite logits, a sink that cannot
// write) is its own entry: only that request ends with it.
struct StepResult {
  std::vector<absl::StatusOr<GeneratedToken>> samples;  // parallel to Step::samples
  std::vector<absl::Status> prompt_logits;              // parallel to Step::prompt_logits
  std::vector<absl::Status> hidden_states;              // parallel to Step::hidden_states
};

// Steps are submitted in plan order and collected in the same order. All ranks of a group submit
// and collect in the same order; on every rank except 0 `samples`, `prompt_logits`,
// `hidden_states` and the results are empty. An error of either call is final for the group:
// UNAVAILABLE when a rank is lost, INTERNAL when the plan exceeds this rank's sealed arenas (a bug
// of the coordinator: exit code 70).
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Maximum number of submitted, uncollected steps: 1 if the submitting thread computes them, 2 if
  // a device computes one while the next is planned.
  virtual int depth() const { return 1; }
  // Collective. Enqueues a step after all submitted ones.
  virtual absl::Status Submit(Step step) = 0;
  // Collective. Waits for the oldest uncollected step.
  virtual absl::StatusOr<StepResult> Collect() = 0;
};

// One complete step, with none in flight.
inline absl::StatusOr<StepResult> RunStep(StepRunner& runner, Step step) {
  if (absl::Status status = runner.Submit(std::move(step)); !status.ok()) return status;
  return runner.Collect();
}

}  // namespace bulkhead
