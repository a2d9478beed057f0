#include "base/wrong_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string TextOf(const std::string& file) {
  return WrongFileText(file.substr(0, kWrongFileBytes), static_cast<int64_t>(file.size()));
}

TEST(WrongFileTest, AGitLfsPointerIsNamedWithWhatToRun) {
  EXPECT_THAT(TextOf("version https://git-lfs.github.com/spec/v1\n"
                     "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                     "size 12345\n"),
              AllOf(HasSubstr("is a Git LFS pointer of 130 bytes"), HasSubstr("git lfs pull")));
}

TEST(WrongFileTest, AnHtmlPageIsNamedWithItsBeginning) {
  EXPECT_THAT(TextOf("\n<!DOCTYPE html>\n<html lang=\"en\">"),
              HasSubstr("is an HTML page (begins with <!DOCTYPE html)"));
  EXPECT_THAT(TextOf("<html><body>Access denied"), HasSubstr("(begins with <html)"));
}

TEST(WrongFileTest, OfWhatMayBeTheFileNothingIsSaid) {
  EXPECT_EQ(TextOf(""), "");
  EXPECT_EQ(TextOf("{\"model_type\": \"llama\"}"), "");
  EXPECT_EQ(TextOf(std::string("\x40\0\0\0\0\0\0\0{}", 10)), "");
}

}  // namespace
}  // namespace bulkhead
