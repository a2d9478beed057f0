#include <cmath>
#include <limits>

#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using ActivationTest = OpTest;

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh,
                                       Activation::kReluSquared, Activation::kSigmoid};

TEST_P(ActivationTest, IsTheSameOnAnyShapeAndStrideWithAGateAndWithout) {
  for (const Activation activation : kActivations) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
      const int64_t stride = 2 * shape.cols + 5;
      std::vector<float> gate_up = RandomFloats(shape.rows * stride, 10);
      for (float& number : gate_up) number *= 4;
      Compare(kActivationTolerance, [&](Backend& backend) {
        std::vector<float> out(shape.rows * (shape.cols + 1), 0.0f);
        backend.GatedActivation(activation, View(gate_up, shape.rows, 2 * shape.cols, stride),
                                View(out, shape.rows, shape.cols, shape.cols + 1));
        return out;
      });
      Compare(kActivationTolerance, [&](Backend& backend) {
        std::vector<float> x = gate_up;
        const MatrixView view = View(x, shape.rows, shape.cols, stride);
        backend.Activate(activation, view, view);
        return x;
      });
    }
  }
}

TEST_P(ActivationTest, OfExtremeGatesIsFinite) {
  std::vector<float> gate_up = {0.0f,   -0.0f, 1e-30f, -1e-30f, 20.0f,  -20.0f, 86.9f,
                                -86.9f, 87.1f, -87.1f, 88.1f,   -88.1f, 104.0f, -104.0f,
                                1e4f,   -1e4f, 1e18f,  -1e18f,  3e38f,  -3e38f};
  const int64_t size = static_cast<int64_t>(gate_up.size());
  gate_up.resize(2 * size, 0.5f);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    Compare(kActivationTolerance, [&](Backend& backend) {
      std::vector<float> out(size);
      backend.GatedActivation(activation, View(gate_up, 1, 2 * size, 2 * size),
                              View(out, 1, size, size));
      for (const float number : out) EXPECT_TRUE(std::isfinite(number));
      return out;
    });
  }
}

TEST_P(ActivationTest, ClampedSwigluReadsGatesAndUpsInTurn) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
    const int64_t stride = 2 * shape.cols + 3;
    std::vector<float> gate_up = RandomFloats(shape.rows * stride, 12);
    for (float& number : gate_up) number *= 6;  // a good part of them is clamped
    Compare(kActivationTolerance, [&](Backend& backend) {
      std::vector<float> out(shape.rows * (shape.cols + 1), 0.0f);
      backend.ClampedSwiglu(1.702f, 7.0f, View(gate_up, shape.rows, 2 * shape.cols, stride),
                            View(out, shape.rows, shape.cols, shape.cols + 1));
      return out;
    });
  }
  std::vector<float> one = {1e4f, 1e4f, -1e4f, -1e4f}, out(2);
  backend_->ClampedSwiglu(1.702f, 7.0f, View(one, 1, 4, 4), View(out, 1, 2, 2));
  EXPECT_NEAR(out[0], 7 * 8, 1e-3);
  EXPECT_EQ(out[1], 0.0f);
}

TEST_P(ActivationTest, ANanStaysANan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {nan, 1.0f, 1.0f, 2.0f};
  for (const Activation activation : kActivations) {
    std::vector<float> out(2);
    backend_->GatedActivation(activation, View(gate_up, 1, 4, 4), View(out, 1, 2, 2));
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_FALSE(std::isnan(out[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ActivationTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
