// Embed on CUDA beside what embed_test.cc asks of every backend.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace bulkhead {
namespace {

TEST(CudaEmbedDeathTest, OfATableInAFormatThatHasNoKernelIsABug) {
  CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
  DeviceArrays arrays(*cuda.driver);
  const Linear table{.shape = LinearShape::Whole(4, 8, DType::kF32)};
  const MatrixView out(reinterpret_cast<std::byte*>(arrays.New<float>(8)), DType::kF32, 1, 8);
  const int32_t* const ids = arrays.Put<int32_t>({1});
  EXPECT_DEATH(cuda.backend->Embed(ids, table, 0, out), "kBF16");
}

}  // namespace
}  // namespace bulkhead
