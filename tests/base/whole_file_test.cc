#include "base/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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

TEST(WholeFile, AFileIsReplacedWholeAndALinkKept) {
  const std::string dir = ::testing::TempDir() + "/replaced_" + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  const std::string path = dir + "/file";
  const std::string link = dir + "/link";
  EXPECT_TRUE(CheckCanWrite("--report", path).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  ASSERT_TRUE(WriteWholeFile("--report", path, "first").ok());
  std::ifstream reader(path);  // of the old file: what replaces it does not cut it
  ASSERT_TRUE(WriteWholeFile("--report", path, "second").ok());
  std::string text;
  reader >> text;
  EXPECT_EQ(text, "first");
  EXPECT_EQ(ReadWholeFile(path).value(), "second");
  EXPECT_TRUE(CheckCanWrite("--report", path).ok());
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(WriteWholeFile("--report", link, "third").ok());
  EXPECT_EQ(ReadWholeFile(path).value(), "third");
  EXPECT_TRUE(WriteWholeFile("--report", "/dev/null", "nothing").ok());
  EXPECT_EQ(WriteWholeFile("--report", dir, "text").message(),
            "cannot write --report " + dir + ": Is a directory");
  EXPECT_EQ(CheckCanWrite("--report", dir + "/no/file").message(),
            "cannot write --report " + dir + "/no/file: No such file or directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 2);
  std::filesystem::remove_all(dir);
}

TEST(WholeFile, WhatCannotBeWrittenIsRefusedWithTheReason) {
  const std::ofstream file("/no/such/file");
  const absl::Status status = CannotWrite("--out", "/no/such/file");
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_EQ(status.message(), "cannot write --out /no/such/file: No such file or directory");
}

}  // namespace
}  // namespace bulkhead
