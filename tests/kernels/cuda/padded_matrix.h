// Matrices for the CUDA ops that work row by row, and comparisons with the reference in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/simd/number_format.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {

inline constexpr int kRows = 5;

// Rows lie further apart than they are wide, so that four numbers at a time can be read where the
// width allows it, and where it does not.
inline int64_t GapOf(int64_t cols) { return cols % 4 == 0 && cols != 64 ? 4 : 3; }

// A matrix whose gaps must stay as they are.
class PaddedMatrix {
 public:
  PaddedMatrix(int64_t rows, int64_t cols, uint32_t seed)
      : rows_(rows), cols_(cols), gap_(GapOf(cols)), values_(rows * (cols + gap_), NAN) {
    const std::vector<float> random = RandomFloats(rows * cols, seed);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(&random[r * cols], cols, &values_[r * (cols + gap_)]);
    }
  }
  static PaddedMatrix Unwritten(int64_t rows, int64_t cols) {
    PaddedMatrix matrix(rows, cols, 0);
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
class RoundedMatrix {
 public:
  RoundedMatrix(DType dtype, int64_t rows, int64_t cols)
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

inline void Wait(Backend& backend) {
  const absl::Status status = backend.device().Synchronize();
  EXPECT_TRUE(status.ok()) << status;
}

// Widths of rows.
class CudaRowsTest : public testing::TestWithParam<int> {};
inline auto Widths() { return testing::Values(1, 31, 64, 112, 300, 1030, 2052); }

}  // namespace bulkhead
