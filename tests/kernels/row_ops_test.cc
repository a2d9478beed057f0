// Norms, rotary embedding and SwiGlu of every variant, against the oracle of values and that of
// bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

ConstMatrixView View(const std::vector<float>& numbers, int64_t rows, int64_t cols,
                     int64_t stride) {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(numbers.data()), DType::kF32, rows,
                         cols, stride);
}
MatrixView View(std::vector<float>& numbers, int64_t rows, int64_t cols, int64_t stride) {
  return MatrixView(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, rows, cols, stride);
}

class RowOps : public testing::TestWithParam<Variant> {
 protected:
  RowOps()
      : device_(NewHostDevice(0)),
        backend_(GetParam().Make(*device_)),
        oracle_(NewReferenceBackend(*device_)),
        ordered_(NewOrderedBackend(*device_)) {}

  // run(backend) on all three; the variant must be near the oracle and equal to ordered.
  template <typename Run>
  void Compare(double tolerance, const Run& run) {
    const std::vector<float> actual = run(*backend_);
    ExpectNear(actual, run(*oracle_), tolerance);
    ExpectSameBits(actual, run(*ordered_));
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> oracle_;
  std::unique_ptr<Backend> ordered_;
};

struct Shape {
  int64_t rows;
  int64_t cols;
};
constexpr Shape kShapes[] = {{0, 8},  {1, 1},   {1, 15},   {3, 16},  {2, 17},
                             {7, 31}, {5, 256}, {33, 333}, {1, 4097}};

TEST_P(RowOps, RmsNormIsTheSameOnAnyShapeAndStride) {
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

TEST_P(RowOps, RmsNormMayWriteOverItsInput) {
  const std::vector<float> x = RandomFloats(5 * 77, 3);
  const std::vector<float> weight = RandomFloats(77, 4);
  std::vector<float> apart(x.size());
  backend_->RmsNorm(View(x, 5, 77, 77), View(weight, 1, 77, 77), 1e-6f, View(apart, 5, 77, 77));
  std::vector<float> in_place = x;
  backend_->RmsNorm(View(in_place, 5, 77, 77), View(weight, 1, 77, 77), 1e-6f,
                    View(in_place, 5, 77, 77));
  ExpectSameBits(in_place, apart);
}

TEST_P(RowOps, RmsNormOfTinyNumbersIsRuledByEpsilon) {
  std::vector<float> x = RandomFloats(2 * 40, 5);
  for (float& number : x) number *= 1e-30f;
  const std::vector<float> weight = RandomFloats(40, 6);
  Compare(kNormTolerance, [&](Backend& backend) {
    std::vector<float> out(x.size());
    backend.RmsNorm(View(x, 2, 40, 40), View(weight, 1, 40, 40), 1e-5f, View(out, 2, 40, 40));
    return out;
  });
}

struct RopeCase {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  bool has_norm;
};

TEST_P(RowOps, NormRopeTurnsTheHeadsOfQAndKAndLeavesV) {
  for (const RopeCase& c :
       {RopeCase{8, 4, 16, true}, RopeCase{8, 4, 16, false}, RopeCase{14, 2, 64, false},
        RopeCase{1, 1, 8, true}, RopeCase{6, 3, 24, true}, RopeCase{2, 1, 10, true},
        RopeCase{3, 1, 2, false}, RopeCase{0, 0, 16, true}, RopeCase{4, 2, 128, true},
        RopeCase{5, 2, 96, false}}) {
    SCOPED_TRACE(testing::Message() << c.num_heads << "/" << c.num_kv_heads << " d " << c.head_dim);
    constexpr int kTokens = 9;
    constexpr int kModelLen = 50;
    const int64_t cols = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
    const int64_t stride = cols + 7;
    const std::vector<float> x = RandomFloats(kTokens * stride, 7);
    const std::vector<float> q_norm = RandomFloats(c.head_dim, 8);
    const std::vector<float> k_norm = RandomFloats(c.head_dim, 9);
    std::vector<float> rope(kModelLen * c.head_dim);
    for (int p = 0; p < kModelLen; ++p) {
      for (int i = 0; i < c.head_dim / 2; ++i) {
        const double angle = p * std::pow(1e4, -2.0 * i / c.head_dim);
        rope[p * c.head_dim + i] = static_cast<float>(std::cos(angle));
        rope[p * c.head_dim + c.head_dim / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    const int32_t position[kTokens] = {0, 1, 2, 49, 17, 3, 0, 31, 16};
    StepIndex index;
    index.num_tokens = kTokens;
    index.position = position;
    const HeadLayout heads{c.num_heads, c.num_kv_heads, c.head_dim, nullptr};
    const auto norm = [&](const std::vector<float>& weight) {
      return c.has_norm ? View(weight, 1, c.head_dim, c.head_dim) : ConstMatrixView();
    };
    Compare(kRopeTolerance, [&](Backend& backend) {
      std::vector<float> qkv = x;
      backend.NormRope(index, heads, norm(q_norm), norm(k_norm), 1e-6f,
                       View(rope, kModelLen, c.head_dim, c.head_dim),
                       View(qkv, kTokens, cols, stride));
      return qkv;
    });
  }
}

TEST_P(RowOps, SwiGluIsTheSameOnAnyShapeAndStride) {
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

TEST_P(RowOps, SwiGluOfExtremeGatesIsFinite) {
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

TEST_P(RowOps, ANanStaysANan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {nan, 1.0f, 1.0f, 2.0f};
  std::vector<float> out(2);
  backend_->SwiGlu(View(gate_up, 1, 4, 4), View(out, 1, 2, 2));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(std::isnan(out[1]));
}

INSTANTIATE_TEST_SUITE_P(Variants, RowOps, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
