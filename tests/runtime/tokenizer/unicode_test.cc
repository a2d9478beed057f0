#include "runtime/tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(Unicode, BrokenBytesBecomeOneReplacementForEachLongestBeginning) {
  const std::string r(kReplacementChar);
  EXPECT_EQ(RepairUtf8("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(RepairUtf8("\xE4\xBD"), r);
  EXPECT_EQ(RepairUtf8("\xE4\xBD"
                       "a"),
            r + "a");
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x98\xE4\xBD\xA0"), r + "\xE4\xBD\xA0");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(RepairUtf8("\xC0\x80\xF5"), r + r + r);
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Unicode, WhatNeedsNoRepairIsValid) {
  for (const char* text : {"", "a", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  }
  for (const char* bytes :
       {"\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC1\xBF", "\xE0\x9F\xBF", "a\xC3"}) {
    EXPECT_FALSE(IsValidUtf8(bytes));
    EXPECT_TRUE(IsValidUtf8(RepairUtf8(bytes)));
  }
}

TEST(Unicode, CharactersSurviveEncoding) {
  for (char32_t c = 1; c < 0x110000; c += c < 0x1000 ? 1 : 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(IsValidUtf8(text));
    size_t position = 0, begin = 9;
    EXPECT_EQ(NextChar(text, &position), c);
    EXPECT_EQ(position, text.size());
    EXPECT_EQ(PreviousChar(text, text.size(), &begin), c);
    EXPECT_EQ(begin, 0u);
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
    const auto a = NormalizeUnicode(form, mixed), b = NormalizeUnicode(form, sorted);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b);
  }
}

}  // namespace
}  // namespace bulkhead
