// The ops that take rows one by one, against the reference in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/number_format.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

constexpr int kRows = 5;

// Rows lie further apart than they are wide, so that four numbers at a time can be read where the
// width allows it, and where it does not.
int64_t GapOf(int64_t cols) { return cols % 4 == 0 && cols != 64 ? 4 : 3; }

// A matrix whose gaps must stay as they are.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, uint32_t seed)
      : rows_(rows), cols_(cols), gap_(GapOf(cols)), values_(rows * (cols + gap_), NAN) {
    const std::vector<float> random = RandomFloats(rows * cols, seed);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(&random[r * cols], cols, &values_[r * (cols + gap_)]);
    }
  }
  static Matrix Unwritten(int64_t rows, int64_t cols) {
    Matrix matrix(rows, cols, 0);
    matrix.values_.assign(matrix.values_.size(), NAN);
    return matrix;
  }
  MatrixView View() {
    return MatrixView(reinterpret_cast<std::byte*>(values_.data()), DType::kF32, rows_, cols_,
                      cols_ + gap_);
  }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t r = 0; r < rows_; ++r) {
      const float* const row = &values_[r * (cols_ + gap_)];
      values.insert(values.end(), row, row + cols_);
      for (int i = 0; i < gap_; ++i) EXPECT_TRUE(std::isnan(row[cols_ + i]));
    }
    return values;
  }

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t gap_;
  std::vector<float> values_;
};

// What an op writes for products: in 16 bits, and nothing beside it.
class Rounded {
 public:
  Rounded(DType dtype, int64_t rows, int64_t cols)
      : dtype_(dtype), rows_(rows), cols_(cols), gap_(GapOf(cols)) {
    bits_.assign(rows * (cols + gap_), kUnwritten);
  }
  MatrixView View() {
    return MatrixView(reinterpret_cast<std::byte*>(bits_.data()), dtype_, rows_, cols_,
                      cols_ + gap_);
  }
  void ExpectRounded(const std::vector<float>& values) const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_ + gap_; ++c) {
        const uint16_t bits = bits_[r * (cols_ + gap_) + c];
        if (c >= cols_) {
          ASSERT_EQ(bits, kUnwritten);
        } else {
          const float value = values[r * cols_ + c];
          ASSERT_EQ(bits, dtype_ == DType::kF16 ? F16OfF32(value) : Bf16OfF32(value));
        }
      }
    }
  }

 private:
  static constexpr uint16_t kUnwritten = 0x7FC1;
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  int64_t gap_;
  std::vector<uint16_t> bits_;
};

// `run` on the reference and on every schedule.
template <typename Run>
void ExpectLikeReference(const Run& run, double tolerance) {
  const auto whole = [&](Backend& backend) {
    const std::vector<float> out = run(backend);
    return out;
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  ExpectNear(OnAllSchedules(whole), whole(*NewReferenceBackend(*host)), tolerance);
}

void Wait(Backend& backend) {
  const absl::Status status = backend.device().Synchronize();
  EXPECT_TRUE(status.ok()) << status;
}

class RowOps : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, RowOps, testing::Values(1, 31, 64, 112, 300, 1030, 2052));

TEST_P(RowOps, RmsNormIsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    Matrix x(kRows, GetParam(), 1), weight(1, GetParam(), 2);
    backend.RmsNorm(x.View(), weight.View(), 1e-5F, x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, kNormTolerance);
}

TEST_P(RowOps, SwiGluIsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    Matrix gate_up(kRows, 2 * GetParam(), 3), out = Matrix::Unwritten(kRows, GetParam());
    backend.SwiGlu(gate_up.View(), out.View());
    Wait(backend);
    return out.Values();
  };
  ExpectLikeReference(run, kSwiGluTolerance);
}

TEST_P(RowOps, OutputsForProductsAreTheOthersRounded) {
  const int64_t width = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (CudaUnderTest& cuda : AllSchedules(true)) {
      Matrix gate_up(kRows, 2 * width, 3), out = Matrix::Unwritten(kRows, width);
      Matrix x(kRows, width, 1), weight(1, width, 2), sum(kRows, width, 5);
      Rounded gated(dtype, kRows, width), normed(dtype, kRows, width);
      cuda.backend->SwiGlu(gate_up.View(), out.View());
      cuda.backend->SwiGlu(gate_up.View(), gated.View());
      Wait(*cuda.backend);
      gated.ExpectRounded(out.Values());
      Matrix twice = x;
      cuda.backend->AddResidualNorm(sum.View(), {}, x.View(), weight.View(), 1e-5F, out.View());
      cuda.backend->AddResidualNorm(sum.View(), {}, twice.View(), weight.View(), 1e-5F,
                                    normed.View());
      Wait(*cuda.backend);
      normed.ExpectRounded(out.Values());
    }
  }
}

TEST_P(RowOps, SumsBiasesAndResidualsAreExact) {
  const auto run = [&](Backend& backend) {
    Matrix x(kRows, GetParam(), 4), sum(kRows, GetParam(), 5), bias(1, GetParam(), 6);
    backend.AddBias(bias.View(), x.View());
    backend.AddResidual(sum.View(), bias.View(), x.View());
    backend.AddResidual(sum.View(), ConstMatrixView(), x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, 0);
}

TEST_P(RowOps, ASumAndItsNormAreThoseOfTwoPasses) {
  for (const bool has_bias : {false, true}) {
    const auto run = [&](Backend& backend, bool one_pass) {
      Matrix x(kRows, GetParam(), 4), sum(kRows, GetParam(), 5), bias(1, GetParam(), 6);
      Matrix weight(1, GetParam(), 7), normed = Matrix::Unwritten(kRows, GetParam());
      const ConstMatrixView added = has_bias ? ConstMatrixView(bias.View()) : ConstMatrixView();
      if (one_pass) {
        backend.AddResidualNorm(sum.View(), added, x.View(), weight.View(), 1e-5F, normed.View());
      } else {
        backend.AddResidual(sum.View(), added, x.View());
        backend.RmsNorm(x.View(), weight.View(), 1e-5F, normed.View());
      }
      Wait(backend);
      std::vector<float> all = x.Values();
      const std::vector<float> norms = normed.Values();
      all.insert(all.end(), norms.begin(), norms.end());
      return all;
    };
    EXPECT_EQ(OnAllSchedules([&](Backend& backend) { return run(backend, true); }),
              OnAllSchedules([&](Backend& backend) { return run(backend, false); }));
  }
}

TEST_P(RowOps, SelectedAndFilledRowsAreExact) {
  const auto run = [&](Backend& backend) {
    Matrix x(kRows, GetParam(), 7), out = Matrix::Unwritten(4, GetParam());
    const std::vector<int32_t> rows = {4, 0, 0};
    backend.SelectRows(x.View(), rows.data(), out.View().Rows(0, 3));
    backend.Fill(-0.0F, out.View().Rows(3, 1));
    Wait(backend);
    return out.Values();
  };
  ExpectLikeReference(run, 0);
}

struct RopeCase {
  int heads, kv_heads, head_dim;
  bool norms;
};
class NormRope : public testing::TestWithParam<RopeCase> {};
INSTANTIATE_TEST_SUITE_P(Heads, NormRope,
                         testing::Values(RopeCase{8, 4, 16, false}, RopeCase{3, 3, 8, true},
                                         RopeCase{5, 1, 80, true}, RopeCase{1, 1, 256, false},
                                         RopeCase{4, 2, 24, true}));

TEST_P(NormRope, IsThatOfTheReference) {
  const RopeCase& c = GetParam();
  const auto run = [&](Backend& backend) {
    const std::vector<int32_t> kv_of(c.heads, 0);
    const HeadLayout heads{c.heads, c.kv_heads, c.head_dim, kv_of.data()};
    const std::vector<int32_t> position = {0, 7, 3, 3, 9};
    Matrix qkv(kRows, (c.heads + 2 * c.kv_heads) * c.head_dim, 8), rope(10, c.head_dim, 9);
    Matrix q_norm(1, c.head_dim, 10), k_norm(1, c.head_dim, 11);
    const StepIndex index{.num_seqs = 1, .num_tokens = kRows, .position = position.data()};
    const auto if_norms = [&](Matrix& m) { return c.norms ? m.View() : MatrixView(); };
    backend.NormRope(index, heads, if_norms(q_norm), if_norms(k_norm), 1e-6F, rope.View(),
                     qkv.View());
    Wait(backend);
    return qkv.Values();
  };
  ExpectLikeReference(run, kRopeTolerance * 2);
}

}  // namespace
}  // namespace bulkhead
