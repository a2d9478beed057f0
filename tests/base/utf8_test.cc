#include "base/utf8.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(Utf8Test, CharactersSurviveEncoding) {
  for (char32_t c = 1; c < 0x110000; c += c < 0x1000 ? 1 : 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(IsValidUtf8(text));
    size_t position = 0, begin = 9;
    EXPECT_EQ(NextChar(text, &position), c);
    EXPECT_EQ(position, text.size());
    EXPECT_EQ(CharBytes(text[0]), text.size());
    EXPECT_EQ(PreviousChar(text, text.size(), &begin), c);
    EXPECT_EQ(begin, 0u);
  }
}

TEST(Utf8Test, OverlongFormsSurrogatesAndCutCharactersAreInvalid) {
  for (const char* text : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                           "ASCII of more than eight bytes, \xE4\xBD", "\x80"}) {
    EXPECT_FALSE(IsValidUtf8(text)) << text;
    size_t position = std::string(text).find_first_of("\xC0\xE0\xED\xF4\xE4\x80");
    EXPECT_EQ(NextChar(text, &position), 0xFFFDu);
  }
}

TEST(Utf8Test, ABeginningOfWholeCharactersIsAsLongAsTheLimitAllows) {
  const std::string text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";  // of 1, 2, 3 and 4 bytes
  const size_t sizes[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t limit = 1; limit < 12; ++limit) {
    EXPECT_EQ(WholeCharacters(text, limit).size(), sizes[limit]) << limit;
  }
  EXPECT_EQ(WholeCharacters("\x80\x80\x80", 2).size(), 2u);
  EXPECT_EQ(CountChars(text), 4);
  const size_t begins[] = {0, 1, 3, 6, 10, 10};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ByteOfChar(text, i), begins[i]) << i;
}

}  // namespace
}  // namespace bulkhead
