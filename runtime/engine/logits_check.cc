#include "runtime/engine/logits_check.h"

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {

absl::Status CheckLogits(StepRunner& runner, bool coordinator) {
  Step step;
  step.plan.add_slot(0);
  step.plan.add_num_tokens(1);
  step.plan.add_start_position(0);
  step.plan.add_num_logits(1);
  step.plan.add_from_candidates(false);
  step.plan.add_token_ids(0);
  step.plan.add_table_slot(0);
  step.plan.add_table_index(0);
  step.plan.add_table_block(1);
  step.plan.set_padded_tokens(1);
  if (coordinator) step.samples.emplace_back().position = 1;
  BH_ASSIGN_OR_RETURN(const StepResult result, RunStep(runner, step));
  if (!coordinator || result.samples[0].ok()) return absl::OkStatus();
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          "the logits of a prompt of one token (id 0) are not finite: ",
          result.samples[0].status().message(),
          "; the checkpoint's weights hold NaN or infinities, or --dtype is too narrow for them: "
          "compare its files with their checksums, and try --dtype float32")),
      ExitCode::kModelRefused);
}

}  // namespace bulkhead
