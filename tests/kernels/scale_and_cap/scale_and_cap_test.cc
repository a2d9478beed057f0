#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using ScaleAndCapTest = OpTest;

TEST_P(ScaleAndCapTest, IsTheSameOnAnyShapeAndStride) {
  for (const Shape& shape : kShapes) {
    for (const float soft_cap : {0.0f, 30.0f}) {
      SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols << " " << soft_cap);
      const int64_t stride = shape.cols + 3;
      std::vector<float> x = RandomFloats(shape.rows * stride, 1);
      for (float& number : x) number *= 100;
      Compare(1e-5, [&](Backend& backend) {
        std::vector<float> out = x;
        backend.ScaleAndCap(0.25f, soft_cap, View(out, shape.rows, shape.cols, stride));
        return out;
      });
    }
  }
}

TEST_P(ScaleAndCapTest, AFactorMayBeAmongTheWeights) {
  const std::vector<float> factor = {0.375f};
  const std::vector<float> x = RandomFloats(5 * 23, 1);
  Compare(1e-6, [&](Backend& backend) {
    std::vector<float> out = x;
    backend.ScaleBy(factor.data(), View(out, 5, 20, 23));
    return out;
  });
}

TEST_P(ScaleAndCapTest, NothingExceedsTheCap) {
  std::vector<float> x = {0.0f, -0.0f, 1e-20f, 5.0f, -5.0f, 1e4f, -1e4f, 3e38f, -3e38f};
  const auto size = static_cast<int64_t>(x.size());
  backend_->ScaleAndCap(1.0f, 30.0f, View(x, 1, size, size));
  EXPECT_EQ(x[0], 0.0f);
  EXPECT_NEAR(x[3], 4.9546, 1e-3);
  EXPECT_EQ(x[5], 30.0f);
  EXPECT_EQ(x[8], -30.0f);
}

INSTANTIATE_TEST_SUITE_P(Variants, ScaleAndCapTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
