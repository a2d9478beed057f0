#include "runtime/engine/step_estimate.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(StepEstimateTest, APlanWithColumnsOfUnequalLengthHasTheShapeOfTheShortest) {
  internal::StepPlan plan;
  plan.set_padded_tokens(3);
  plan.add_slot(0);
  plan.add_slot(1);
  EXPECT_EQ(ShapeOf(plan).context, 0);
  plan.add_num_tokens(3);
  plan.add_start_position(4);
  EXPECT_EQ(ShapeOf(plan).context, 0);
  plan.add_num_logits(1);
  EXPECT_EQ(ShapeOf(plan).tokens, 3);
  EXPECT_EQ(ShapeOf(plan).logit_rows, 1);
  EXPECT_EQ(ShapeOf(plan).context, 3 * (4 + 2));
}

}  // namespace
}  // namespace bulkhead
