#include <cmath>
#include <limits>

#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using SwiGluTest = OpTest;

TEST_P(SwiGluTest, SwiGluIsTheSameOnAnyShapeAndStride) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
    const int64_t stride = 2 * shape.cols + 5;
    std::vector<float> gate_up = RandomFloats(shape.rows * stride, 10);
    for (float& number : gate_up) number *= 4;
    Compare(kSwiGluTolerance, [&](Backend& backend) {
      std::vector<float> out(shape.rows * (shape.cols + 1), 0.0f);
      backend.SwiGlu(View(gate_up, shape.rows, 2 * shape.cols, stride),
                     View(out, shape.rows, shape.cols, shape.cols + 1));
      return out;
    });
  }
}

TEST_P(SwiGluTest, SwiGluOfExtremeGatesIsFinite) {
  std::vector<float> gate_up = {0.0f,   -0.0f, 1e-30f, -1e-30f, 20.0f,  -20.0f, 86.9f,
                                -86.9f, 87.1f, -87.1f, 88.1f,   -88.1f, 104.0f, -104.0f,
                                1e4f,   -1e4f, 1e30f,  -1e30f,  3e38f,  -3e38f};
  const int64_t size = static_cast<int64_t>(gate_up.size());
  gate_up.resize(2 * size, 0.5f);
  Compare(kSwiGluTolerance, [&](Backend& backend) {
    std::vector<float> out(size);
    backend.SwiGlu(View(gate_up, 1, 2 * size, 2 * size), View(out, 1, size, size));
    for (const float number : out) EXPECT_TRUE(std::isfinite(number));
    return out;
  });
}

TEST_P(SwiGluTest, ANanStaysANan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {nan, 1.0f, 1.0f, 2.0f};
  std::vector<float> out(2);
  backend_->SwiGlu(View(gate_up, 1, 4, 4), View(out, 1, 2, 2));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(std::isnan(out[1]));
}

INSTANTIATE_TEST_SUITE_P(Variants, SwiGluTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
