#include "launcher/group/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

TEST(BatchTest, OutputsAreNotTheInput) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "bulkhead_batch_test";
  std::filesystem::create_directories(folder);
  const std::string input = folder / "input", link = folder / "link";
  std::ofstream(input) << "{}\n";
  std::filesystem::remove(link);
  std::filesystem::create_hard_link(input, link);
  const auto check = [&](const std::string& out) {
    return CheckApart("--out", out, "--prompts", input);
  };
  EXPECT_EQ(ExitCodeOf(check(input)), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeOf(check(link)), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeOf(check(folder / "." / "input")), ExitCode::kUsage);
  EXPECT_TRUE(check(folder / "other").ok());
  EXPECT_TRUE(check("-").ok());
  EXPECT_TRUE(CheckApart("--out", "-", "--prompts", "-").ok());
  std::filesystem::remove_all(folder);
}

TEST(BatchTest, ResultsOnStandardOutputUnderOpenMpi5AreWarnedOf) {
  const auto opened = [] {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(ResultLines().Open("-", nullptr).ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(opened(), "");
  setenv("PRTE_LAUNCHED", "1", 1);
  EXPECT_THAT(opened(), testing::HasSubstr("use --out FILE"));
  unsetenv("PRTE_LAUNCHED");
}

}  // namespace
}  // namespace bulkhead
