// The fixture of the ops that work row by row: a variant against the oracle of values and that of
// bits.
#pragma once

#include <gtest/gtest.h>

#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {

inline ConstMatrixView View(const std::vector<float>& numbers, int64_t rows, int64_t cols,
                            int64_t stride) {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(numbers.data()), DType::kF32, rows,
                         cols, stride);
}
inline MatrixView View(std::vector<float>& numbers, int64_t rows, int64_t cols, int64_t stride) {
  return MatrixView(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, rows, cols, stride);
}

class OpTest : public testing::TestWithParam<Variant> {
 protected:
  OpTest()
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
inline constexpr Shape kShapes[] = {{0, 8},  {1, 1},   {1, 15},   {3, 16},  {2, 17},
                                    {7, 31}, {5, 256}, {33, 333}, {1, 4097}};

}  // namespace bulkhead
