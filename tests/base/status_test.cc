#include "base/status.h"

#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace bulkhead
