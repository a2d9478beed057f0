#include "runtime/engine/logits_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

// Answers its single step with `sample`, on a rank that samples.
class OneStepRunner final : public StepRunner {
 public:
  explicit OneStepRunner(absl::StatusOr<GeneratedToken> sample) : sample_(std::move(sample)) {}
  absl::Status Submit(Step step) override {
    EXPECT_EQ(step.plan.token_ids_size(), 1);
    num_samples_ = step.samples.size();
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Collect() override {
    StepResult result;
    for (size_t i = 0; i < num_samples_; ++i) result.samples.push_back(sample_);
    return result;
  }

 private:
  const absl::StatusOr<GeneratedToken> sample_;
  size_t num_samples_ = 0;
};

TEST(CheckLogits, RefusesAModelWhoseLogitsAreNoNumbers) {
  OneStepRunner runner(absl::InternalError("logit 7 is NaN"));
  const absl::Status refused = CheckLogits(runner, /*coordinator=*/true);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("logit 7 is NaN; the checkpoint"));
  EXPECT_TRUE(CheckLogits(runner, /*coordinator=*/false).ok());
}

TEST(CheckLogits, IsOkWhereATokenIsDrawn) {
  OneStepRunner runner(GeneratedToken{});
  EXPECT_TRUE(CheckLogits(runner, /*coordinator=*/true).ok());
}

}  // namespace
}  // namespace bulkhead
