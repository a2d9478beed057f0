#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using RmsNormTest = OpTest;

TEST_P(RmsNormTest, RmsNormIsTheSameOnAnyShapeAndStride) {
  for (const Shape& shape : kShapes) {
    for (const int64_t padding : {0, 3}) {
      SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols << "+" << padding);
      const int64_t stride = shape.cols + padding;
      const std::vector<float> x = RandomFloats(shape.rows * stride, 1);
      const std::vector<float> weight = RandomFloats(shape.cols, 2);
      Compare(kNormTolerance, [&](Backend& backend) {
        std::vector<float> out(shape.rows * stride, 0.0f);
        backend.RmsNorm(View(x, shape.rows, shape.cols, stride),
                        View(weight, 1, shape.cols, shape.cols), 1e-5f,
                        View(out, shape.rows, shape.cols, stride));
        return out;
      });
    }
  }
}

TEST_P(RmsNormTest, RmsNormMayWriteOverItsInput) {
  const std::vector<float> x = RandomFloats(5 * 77, 3);
  const std::vector<float> weight = RandomFloats(77, 4);
  std::vector<float> apart(x.size());
  backend_->RmsNorm(View(x, 5, 77, 77), View(weight, 1, 77, 77), 1e-6f, View(apart, 5, 77, 77));
  std::vector<float> in_place = x;
  backend_->RmsNorm(View(in_place, 5, 77, 77), View(weight, 1, 77, 77), 1e-6f,
                    View(in_place, 5, 77, 77));
  ExpectSameBits(in_place, apart);
}

TEST_P(RmsNormTest, RmsNormOfTinyNumbersIsRuledByEpsilon) {
  std::vector<float> x = RandomFloats(2 * 40, 5);
  for (float& number : x) number *= 1e-30f;
  const std::vector<float> weight = RandomFloats(40, 6);
  Compare(kNormTolerance, [&](Backend& backend) {
    std::vector<float> out(x.size());
    backend.RmsNorm(View(x, 2, 40, 40), View(weight, 1, 40, 40), 1e-5f, View(out, 2, 40, 40));
    return out;
  });
}

INSTANTIATE_TEST_SUITE_P(Variants, RmsNormTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
