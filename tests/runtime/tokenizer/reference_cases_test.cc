// Every expected value comes from the reference library; see tests/data/tokenizers/README.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

void ExpectCase(const Tokenizer& tokenizer, const json& expected) {
  const std::string text = expected["text"];
  const auto ids = tokenizer.Encode(text, false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, expected["ids"].get<Ids>()) << expected["text"];
  const auto with_special = tokenizer.Encode(text, true);
  ASSERT_TRUE(with_special.ok()) << with_special.status();
  EXPECT_EQ(*with_special, expected["ids_with_special"].get<Ids>()) << expected["text"];
  const Ids tokens = expected[expected.contains("tokens") ? "tokens" : "ids"];
  EXPECT_EQ(tokenizer.Decode(tokens, false), expected["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.Decode(tokens, true), expected["decoded_skip_special"].get<std::string>());
}

TEST(ReferenceCases, TrainedTokenizersGiveTheReferencesIdsAndText) {
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const std::vector<json> cases = ReadJsonLines(TokenizerDir(name) + "/cases.jsonl");
    ASSERT_GT(cases.size(), 200u);
    for (const json& expected : cases) {
      ExpectCase(*tokenizer, expected);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ReferenceCases, EveryOtherPartGivesTheReferencesIdsAndText) {
  for (const MadeTokenizer& made : MadeTokenizers()) {
    SCOPED_TRACE(made.name);
    ASSERT_NE(made.tokenizer, nullptr);
    for (const json& expected : made.cases) {
      ExpectCase(*made.tokenizer, expected);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ReferenceCases, AddedTokensHaveTheVocabularysIdOrCountOn) {
  const auto tokenizer = SmallTokenizer(
      {{"added_tokens", {AddedTokenJson("ab", true), AddedTokenJson("<x>", false)}}});
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = tokenizer->Encode("<x>abc", false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, Ids({6, 3, 2}));
  EXPECT_EQ(tokenizer->Decode({3, 6}, true), "<x>");
  EXPECT_EQ(tokenizer->Decode({3, 6}, false), "ab<x>");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
}

TEST(ReferenceCases, IdsOutsideTheVocabularyDecodeToNothing) {
  const auto tokenizer = SmallTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode({0, -1, 6, 1 << 30, 1}, true), "ab");
}

TEST(ReferenceCases, MetaspacesOlderSpellingMeansNeverOrAlways) {
  for (const bool add : {false, true}) {
    const json metaspace = {{"type", "Metaspace"}, {"replacement", "c"}, {"add_prefix_space", add}};
    const auto tokenizer = SmallTokenizer({{"pre_tokenizer", metaspace}, {"decoder", metaspace}});
    ASSERT_NE(tokenizer, nullptr);
    const Ids expected = add ? Ids{2, 3, 2, 0} : Ids{3, 2, 0};
    const auto ids = tokenizer->Encode("ab a", true);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, expected);
    EXPECT_EQ(tokenizer->Decode(*ids, true), "ab a");
  }
}

}  // namespace
}  // namespace bulkhead
