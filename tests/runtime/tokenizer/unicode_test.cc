#include "runtime/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

std::string Repaired(const std::string& bytes, size_t step) {
  Utf8Repair repair;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += step) repair.Append(bytes.substr(i, step), &out);
  repair.Flush(&out);
  return out;
}

TEST(Unicode, BrokenBytesBecomeOneReplacementForEachLongestBeginning) {
  const std::string r(kReplacementChar);
  EXPECT_EQ(Repaired("a\xFFz", 1), "a" + r + "z");
  EXPECT_EQ(Repaired("\xE4\xBD", 1), r);
  EXPECT_EQ(Repaired("\xE4\xBD"
                     "a",
                     1),
            r + "a");
  EXPECT_EQ(Repaired("\xF0\x9F\x98\xE4\xBD\xA0", 1), r + "\xE4\xBD\xA0");
  EXPECT_EQ(Repaired("\xED\xA0\x80", 1), r + r + r);
  EXPECT_EQ(Repaired("\xC0\x80\xF5", 1), r + r + r);
  EXPECT_EQ(Repaired("\xF0\x9F\x98\x80", 1), "\xF0\x9F\x98\x80");
}

TEST(Unicode, RepairingInPartsEqualsRepairingTheWhole) {
  constexpr uint32_t kSeed = 7;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  const unsigned char bytes[] = {'a', 0x80, 0xBF, 0xC3, 0xE0, 0xA0, 0xED, 0xF0, 0x90, 0xF4, 0xFF};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int n = random() % 12; n > 0; --n) text += static_cast<char>(bytes[random() % 11]);
    const std::string whole = Repaired(text, text.size() + 1);
    EXPECT_TRUE(IsValidUtf8(whole));
    EXPECT_EQ(whole == text, IsValidUtf8(text));
    for (size_t step = 1; step < 4; ++step) ASSERT_EQ(Repaired(text, step), whole);
  }
}

TEST(Unicode, NormalFormsSortLongRunsOfMarksAsShortOnes) {
  // A run of 200 marks sorted by us equals the same marks in an order that needs no sorting.
  std::string mixed = "a", sorted = "a";
  for (int i = 0; i < 100; ++i) mixed += "\xCC\x81\xCC\xA3";
  for (int i = 0; i < 100; ++i) sorted += "\xCC\xA3";
  for (int i = 0; i < 100; ++i) sorted += "\xCC\x81";
  for (const NormalForm form :
       {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    std::string a, b;
    const auto to = [](std::string* out) {
      return [out](absl::string_view part) { absl::StrAppend(out, part); };
    };
    ASSERT_TRUE(NormalizeUnicode(form, mixed, to(&a)).ok());
    ASSERT_TRUE(NormalizeUnicode(form, sorted, to(&b)).ok());
    EXPECT_EQ(a, b);
  }
}

}  // namespace
}  // namespace bulkhead
