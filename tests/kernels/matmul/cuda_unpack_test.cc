// Quantised weights as bf16, in the order of the depth: what the reference's Embed says of each
// row, rounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_sizes.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/packing/cuda_packing.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/packed_weight.h"

namespace bulkhead {
namespace {

std::vector<ProductCase> Cases() {
  std::vector<ProductCase> cases;
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    cases.push_back({{64, 256, format, {0, 256}, {128, 0, 0}}});
    cases.push_back({{100, 322, format, {0, 322}, {64, 0, 0}}, true});
    cases.push_back({{40, 600, format, {0, 150, 300, 450, 600}, {32, 0, 0}}, true});
  }
  cases.push_back({{40, 150, WeightFormat::kInt4, {0, 75, 150}, {32, 0, 5}}, true});  // act order
  cases.push_back({{100, 322, WeightFormat::kFp8, {0, 322}, {64, 0, 0, ScaleFormat::kF32}}, true});
  cases.push_back(
      {{40, 600, WeightFormat::kMxfp4, {0, 300, 600}, {32, 0, 0, ScaleFormat::kE8M0}}, true});
  cases.push_back(
      {{40, 600, WeightFormat::kNvfp4, {0, 296, 600}, {16, 0, 0, ScaleFormat::kE4M3}}, true});
  cases.push_back({{40, 322, WeightFormat::kInt4, {0, 322}, {64, 0, 0, ScaleFormat::kBF16}}, true});
  return cases;
}

class CudaUnpack : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaUnpack, testing::ValuesIn(Cases()));

// [rows, cols] f32, as tables are looked up.
std::vector<float> Widened(Backend& backend, const Packed& packed) {
  const LinearShape& shape = packed.linear.shape;
  std::vector<int32_t> tokens(shape.rows);
  for (int32_t row = 0; row < shape.rows; ++row) tokens[row] = row;
  std::vector<float> values(shape.rows * shape.cols, NAN);
  backend.Embed(tokens.data(), packed.linear, 0,
                ViewOf(values, shape.rows, shape.cols, shape.cols));
  packed.Wait();
  return values;
}

TEST_P(CudaUnpack, WritesEachNumberWhereTheDepthHasItsInput) {
  const LinearShape& shape = GetParam().shape;
  const PackedLayout layout(shape);
  for (CudaUnderTest& cuda : AllSchedules()) {
    const Packed packed(*cuda.backend, GetParam(), 8);
    const std::unique_ptr<Device> host = NewHostDevice(0);
    const std::unique_ptr<Backend> reference = NewReferenceBackend(*host);
    const std::vector<float> want = Widened(*reference, Packed(*reference, GetParam(), 8));
    const cuda::PackedWeight weight = layout.Parameters(shape, packed.linear.packed);
    for (const int first_row : {0, 16}) {
      const int64_t rows = layout.padded_rows() - first_row;
      std::vector<uint16_t> got(rows * layout.depth() + 1, 0xFFFF);
      std::vector<int32_t> input_at(weight.input_at == nullptr ? 0 : layout.depth());
      if (!input_at.empty()) {
        cuda.driver->CopyToHost(reinterpret_cast<const std::byte*>(weight.input_at),
                                input_at.data(), layout.depth() * 4);
      }
      Enqueue(*cuda.driver, cuda::UnpackKernel(shape.format),
              {.grid = {static_cast<int>(rows / cuda::kTileRows),
                        static_cast<int>(
                            (layout.depth() / cuda::kDepthGranule + cuda::kUnpackWarps - 1) /
                            cuda::kUnpackWarps),
                        1},
               .block = {cuda::kUnpackWarps * 32, 1, 1}},
              {weight, first_row, got.data()});
      packed.Wait();
      EXPECT_EQ(got.back(), 0xFFFF);
      for (int64_t row = first_row; row < layout.padded_rows(); ++row) {
        for (int64_t at = 0; at < layout.depth(); ++at) {
          const uint16_t number = got[(row - first_row) * layout.depth() + at];
          const int64_t input = input_at.empty() ? at : input_at[at];
          if (row >= shape.rows) {
            ASSERT_EQ(number & 0x7FFF, 0) << "a row that only fills up the tile";
          } else if (input >= 0 && input < shape.cols) {
            const float rounded = F32OfBf16(Bf16OfF32(want[row * shape.cols + input]));
            ASSERT_EQ(F32OfBf16(number), rounded) << row << ", " << at;
          }
        }
      }
    }
  }
}

// What ends on a check of the packing when it is loaded.
TEST(CudaCells, AreRefusedByNameWhereTheMapHasNoRoomForThem) {
  const auto check = [](int64_t inputs, int group_size, int indexed = 0) {
    return CheckCudaCells("some.weight",
                          {16, inputs, WeightFormat::kInt4, {0, inputs}, {group_size, 0, indexed}});
  };
  EXPECT_TRUE(check(65536, 1).ok());
  EXPECT_TRUE(check(32766 * 32, 32766 * 32).ok());
  EXPECT_TRUE(check(1 << 19, 32, (1 << 19) / 32).ok());
  for (const absl::Status& status :
       {check(65537, 1), check(1 << 20, 1 << 20), check(1 << 20, 32, (1 << 20) / 32)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("some.weight has "), testing::HasSubstr("65536"),
                               testing::HasSubstr("1048544"), testing::HasSubstr("--device cpu")));
  }
}

}  // namespace
}  // namespace bulkhead
