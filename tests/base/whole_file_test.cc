#include "base/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(WholeFile, EveryByteComesAlsoOfAFileWithoutASize) {
  const std::string path = ::testing::TempDir() + "/whole_file_" + std::to_string(getpid());
  const std::string text = std::string(200'000, 'x') + '\0' + "\r\nend";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(ReadWholeFile(path).value(), text);
  unlink(path.c_str());
  EXPECT_THAT(ReadWholeFile("/proc/self/cmdline").value(), HasSubstr("_test"));
  EXPECT_EQ(ReadWholeFile("/dev/null").value(), "");
}

TEST(WholeFile, WhatCannotBeReadIsRefusedByName) {
  for (const std::string& path : {::testing::TempDir(), std::string("/no/such/file")}) {
    const absl::Status status = ReadWholeFile(path).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << path;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  EXPECT_THAT(std::string(ReadWholeFile("/proc").status().message()),
              StartsWith("/proc is a directory"));
}

TEST(WholeFile, WhatCannotBeWrittenIsRefusedWithTheReason) {
  const std::ofstream file("/no/such/file");
  const absl::Status status = CannotWrite("--out", "/no/such/file");
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_EQ(status.message(), "cannot write --out /no/such/file: No such file or directory");
}

}  // namespace
}  // namespace bulkhead
