// The bytes of single tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

TEST(TokenBytesTest, JoinedTheyAreTheTextEvenInsideCharacters) {
  const std::string text =
      "say {\"name\": [\"caf\xC3\xA9\", 12.5]} \xE6\x97\xA5\xF0\x9F\x98\x80\n\t end";
  for (const std::string& name : TrainedTokenizers()) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const absl::StatusOr<std::vector<std::string>> bytes = tokenizer->TokenBytes();
    ASSERT_TRUE(bytes.ok()) << name << bytes.status();
    EXPECT_EQ(static_cast<int>(bytes->size()), tokenizer->vocab_size());
    const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    std::string joined;
    for (const int32_t id : *ids) joined += (*bytes)[id];
    // Where a text begins, some have a space of their own.
    EXPECT_TRUE(joined == text || joined == " " + text) << name << ": " << joined;
  }
}

TEST(TokenBytesTest, SpecialTokensHaveNone) {
  const std::unique_ptr<Tokenizer> tokenizer = SmallTokenizer(
      {{"added_tokens", {AddedTokenJson("<end>", true), AddedTokenJson("<tool>", false)}},
       {"decoder", {{"type", "Fuse"}}}});
  ASSERT_NE(tokenizer, nullptr);
  const absl::StatusOr<std::vector<std::string>> bytes = tokenizer->TokenBytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string text = tokenizer->Decode({id}, false);
    EXPECT_EQ((*bytes)[id], text == "<end>" ? "" : text);
    EXPECT_EQ(tokenizer->BytesOf(id), (*bytes)[id]);
  }
  for (const int32_t id : {-1, tokenizer->vocab_size()}) {
    EXPECT_EQ(tokenizer->BytesOf(id), "");
    EXPECT_EQ(tokenizer->TokenOf(id), "");
  }
}

TEST(TokenBytesTest, ATokenIsSpeltAsTheVocabularyDoes) {
  const std::unique_ptr<Tokenizer> tokenizer = SmallTokenizer(
      {{"added_tokens", {AddedTokenJson("<end>", true)}},
       {"decoder", {{"type", "Replace"}, {"pattern", {{"String", "c"}}}, {"content", "-"}}}});
  ASSERT_NE(tokenizer, nullptr);
  const int32_t c = tokenizer->Encode("c", false)->front();
  EXPECT_EQ(tokenizer->Decode({c}, false), "-");
  EXPECT_EQ(tokenizer->TokenOf(c), "c");
  EXPECT_EQ(tokenizer->TokenOf(tokenizer->Encode("<end>", false)->front()), "<end>");
}

TEST(TokenBytesTest, TokensThatDependOnTheirPlaceAreRefused) {
  const std::unique_ptr<Tokenizer> tokenizer =
      SmallTokenizer({{"decoder", {{"type", "BPEDecoder"}, {"suffix", "c"}}}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->TokenBytes().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(tokenizer->BytesOf(tokenizer->Encode("c", false)->front()), std::nullopt);
}

}  // namespace
}  // namespace bulkhead
