#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using LayerNormTest = OpTest;

TEST_P(LayerNormTest, IsTheSameOnAnyShapeAndStrideInPlaceAndWithABias) {
  for (const Shape& shape : kShapes) {
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
      const int64_t stride = shape.cols + 3;
      std::vector<float> x = RandomFloats(shape.rows * stride, 1);
      for (float& number : x) number += 2;  // a mean that is not 0
      const std::vector<float> weight = RandomFloats(shape.cols, 2);
      const std::vector<float> bias = RandomFloats(shape.cols, 3);
      Compare(10 * kNormTolerance, [&](Backend& backend) {
        std::vector<float> out = x;
        const MatrixView view = View(out, shape.rows, shape.cols, stride);
        backend.LayerNorm(view, View(weight, 1, shape.cols, shape.cols),
                          has_bias ? View(bias, 1, shape.cols, shape.cols) : ConstMatrixView(),
                          1e-5f, view);
        return out;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, LayerNormTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
