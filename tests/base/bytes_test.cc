#include "base/bytes.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(BytesTest, SpellingsOfPeopleAreRead) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"32k", 32000},
      {"32K", 32768},
      {"32Ki", 32768},
      {"4GB", 4000000000},
      {"4G", 4000000000},
      {"4GiB", 4294967296},
      {"1.5GiB", 1610612736},
      {" 7 MiB ", 7340032},
      {"2TiB", 2199023255552},
      {"9223372036854775807", INT64_MAX},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = ParseCount(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(BytesTest, AnythingElseIsRefusedAndQuoted) {
  for (const char* text : {"", "-1", "many", "4 potatoes", "1e3", "0x10", "nan", "inf", "4GiBB",
                           "1.5", "9223372036854775808", "99999999999TiB", ".", "1..5GiB", "GiB"}) {
    const auto parsed = ParseCount(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find(text), std::string::npos) << parsed.status();
  }
}

TEST(BytesTest, AreWrittenForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{66} << 30), "66.0 GiB");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(643232), "643,232");
  EXPECT_EQ(FormatCount(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace bulkhead
