#include "base/status.h"

#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "gtest/gtest.h"
#include "memory/matrix.h"

namespace bulkhead {
namespace {

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  BH_ASSIGN_OR_RETURN(const int half, Half(value));
  BH_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(StatusTest, MacrosPassErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(ExitCodeTest, TravelsWithTheStatus) {
  const absl::Status status = WithExitCode(absl::NotFoundError("x"), ExitCode::kModelRefused);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("y")), ExitCode::kBug);
  EXPECT_TRUE(WithExitCode(absl::OkStatus(), ExitCode::kUsage).ok());
}

TEST(LostRankTest, TravelsWithTheStatusWhateverItsWords) {
  const absl::Status status =
      WithLostRank(absl::UnavailableError("worded in any way"), {.rank = 2, .host = "node b"});
  EXPECT_EQ(LostRankOf(status), (LostRank{2, "node b"}));
  EXPECT_EQ(LostRankOf(absl::UnavailableError("rank 2 (host a, pid 7) ended")), LostRank());
  EXPECT_EQ(LostRankOf(WithLostRank(absl::UnavailableError("x"), {})), LostRank());
  EXPECT_TRUE(WithLostRank(absl::OkStatus(), {2, "a"}).ok());
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
