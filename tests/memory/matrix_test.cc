#include "memory/matrix.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(MatrixTest, SlicesAreViewsOfTheSameMemory) {
  std::vector<float> data(6 * 8);
  std::iota(data.begin(), data.end(), 0.0F);
  const MatrixView whole(reinterpret_cast<std::byte*>(data.data()), DType::kF32, 6, 5, 8);
  EXPECT_EQ(whole.F32(2)[4], 20);
  const MatrixView part = whole.Rows(1, 3).Cols(2, 2);
  EXPECT_EQ(part.rows(), 3);
  EXPECT_EQ(part.cols(), 2);
  EXPECT_EQ(part.row_stride(), 8);
  EXPECT_EQ(part.F32(0)[0], 10);
  EXPECT_EQ(part.F32(2)[1], 27);
  part.F32(2)[1] = -1;
  EXPECT_EQ(data[27], -1);
  const ConstMatrixView constant = part;
  EXPECT_EQ(constant.F32(2)[1], -1);
  EXPECT_TRUE(whole.Rows(6, 0).empty());
  EXPECT_TRUE(MatrixView().empty());
  EXPECT_FALSE(whole.empty());
}

TEST(MatrixTest, RowsOfNarrowTypesAreTwoBytesApart) {
  std::vector<uint16_t> data(12);
  const MatrixView view(reinterpret_cast<std::byte*>(data.data()), DType::kBF16, 3, 4);
  EXPECT_EQ(view.RowBytes(2), reinterpret_cast<std::byte*>(data.data() + 8));
  EXPECT_EQ(view.Cols(3, 1).RowBytes(1), reinterpret_cast<std::byte*>(data.data() + 7));
}

TEST(MatrixDeathTest, SliceOutsideTheMatrixAndWrongTypeAreBugs) {
  std::vector<float> data(4);
  const MatrixView view(reinterpret_cast<std::byte*>(data.data()), DType::kF32, 2, 2);
  EXPECT_EXIT((void)view.Rows(1, 2), testing::ExitedWithCode(70), "matrix");
  EXPECT_EXIT((void)view.Cols(-1, 1), testing::ExitedWithCode(70), "matrix");
  const MatrixView narrow(reinterpret_cast<std::byte*>(data.data()), DType::kF16, 2, 2);
  EXPECT_EXIT((void)narrow.F32(), testing::ExitedWithCode(70), "matrix");
}

TEST(MatrixTest, TypesAreReadInEverySpelling) {
  for (const char* name : {"float32", "f32", "FP32", "float"})
    EXPECT_EQ(*ParseDType(name), DType::kF32);
  for (const char* name : {"bfloat16", "BF16"}) EXPECT_EQ(*ParseDType(name), DType::kBF16);
  for (const char* name : {"float16", "f16", "fp16", "half"})
    EXPECT_EQ(*ParseDType(name), DType::kF16);
  EXPECT_EQ(ParseDType("int7").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DTypeName(DType::kBF16), "bfloat16");
  EXPECT_EQ(*ParseDType(DTypeName(DType::kF16)), DType::kF16);
  EXPECT_EQ(DTypeBytes(DType::kF32), 4);
  EXPECT_EQ(DTypeBytes(DType::kI32), 4);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2);
}

TEST(MatrixViewTest, SlicesAreViewsOfTheSameMemory) {
  float values[12];
  for (int i = 0; i < 12; ++i) values[i] = static_cast<float>(i);
  const MatrixView matrix(reinterpret_cast<std::byte*>(values), DType::kF32, 3, 4);
  const MatrixView part = matrix.Rows(1, 2).Cols(2, 2);
  EXPECT_EQ(part.rows(), 2);
  EXPECT_EQ(part.row_stride(), 4);
  EXPECT_EQ(part.F32(0)[0], 6.0F);
  EXPECT_EQ(part.F32(1)[1], 11.0F);
  EXPECT_TRUE(matrix.Rows(3, 0).empty());
  const ConstMatrixView constant = part;
  EXPECT_EQ(constant.F32(0), part.F32(0));
}

TEST(MatrixViewDeathTest, ASliceOutsideIsABug) {
  float value = 0;
  const MatrixView matrix(reinterpret_cast<std::byte*>(&value), DType::kF32, 1, 1);
  EXPECT_EXIT((void)matrix.Rows(1, 1), testing::ExitedWithCode(70), "check failed");
  EXPECT_EXIT((void)matrix.Cols(-1, 1), testing::ExitedWithCode(70), "check failed");
}

TEST(DTypeTest, NamesAndShortSpellingsAreKnown) {
  for (const char* name : {"float32", "f32", "fp32"}) EXPECT_EQ(*ParseDType(name), DType::kF32);
  for (const char* name : {"bfloat16", "bf16", "BF16"}) EXPECT_EQ(*ParseDType(name), DType::kBF16);
  for (const char* name : {"float16", "f16", "half"}) EXPECT_EQ(*ParseDType(name), DType::kF16);
  EXPECT_FALSE(ParseDType("int4").ok());
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
}

}  // namespace
}  // namespace bulkhead
