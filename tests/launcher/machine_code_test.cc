#include "launcher/machine_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead {
namespace {

using testing::HasSubstr;

TEST(MachineCodeTest, RunsOnItsMajorVersionFromItsMinorVersionOn) {
  const auto runs = [](const char* architectures, int major, int minor) {
    return CompilesAtStart(architectures, major, minor).empty();
  };
  for (const int minor : {0, 6, 7, 9}) EXPECT_TRUE(runs("80;90", 8, minor)) << minor;
  EXPECT_TRUE(runs("80;90", 9, 0));
  EXPECT_FALSE(runs("80;90", 10, 0));
  EXPECT_FALSE(runs("80;90", 12, 0));
  EXPECT_FALSE(runs("89", 8, 6));
  EXPECT_TRUE(runs("80-real;100-real;120", 10, 3));
  EXPECT_TRUE(runs("80-real;100-real;120", 12, 1));
  EXPECT_FALSE(runs("80;90;100;120", 11, 0));
  EXPECT_FALSE(runs("80;90-virtual", 9, 0));
  EXPECT_TRUE(runs("90a", 9, 0));
  EXPECT_FALSE(runs("100a-real", 10, 3));
  EXPECT_TRUE(runs("native", 12, 0));
}

TEST(MachineCodeTest, WhereTheDriverCompilesTheLineSaysHowLongWhereAndWhatToBuild) {
  const std::string line = CompilesAtStart("80;90", 12, 1);
  EXPECT_THAT(line, HasSubstr("no machine code for compute capability 12.1 (it is for 80;90)"));
  EXPECT_THAT(line, HasSubstr("may take minutes"));
  EXPECT_THAT(line, HasSubstr("CUDA_CACHE_PATH"));
  EXPECT_THAT(line, HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=120 "));
}

}  // namespace
}  // namespace bulkhead
