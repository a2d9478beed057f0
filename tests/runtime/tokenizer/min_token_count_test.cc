// The minimum number of tokens of a text from its length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;

// Texts with tokens that cover much, or that a tokenizer may shorten.
std::vector<std::string> Texts(const Tokenizer& tokenizer) {
  std::vector<std::string> parts = {" ",
                                    "a",
                                    "\n",
                                    "\t ",
                                    "0",
                                    ".",
                                    "\xF0\x9F\x98\x80",
                                    "a\xCC\x81",  // combining
                                    "\xE2\x84\xAA",
                                    "\xE4\xB8\x80",
                                    "\xEF\xBF\xBD",
                                    "<unk>"};
  int32_t longest = 0;
  const auto bytes = [&](int32_t id) { return tokenizer.Decode({id}, false).size(); };
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (bytes(id) > bytes(longest)) longest = id;
  }
  parts.push_back(tokenizer.Decode({longest}, false));
  std::vector<std::string> texts;
  for (const std::string& part : parts) {
    for (const int times : {1, 2, 500}) {
      std::string text;
      for (int i = 0; i < times; ++i) text += part;
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

void ExpectNoTextHasFewer(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
    if (ids.ok()) {
      EXPECT_GE(ids->size(), tokenizer.MinTokenCount(text.size())) << text.substr(0, 80);
    }
  }
}

TEST(MinTokenCount, NoTextOfATrainedTokenizerHasFewer) {
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    // The first normalises to NFC, which may shorten a text; the other drops what its regular
    // expression does not match.
    const bool may_shorten = name == "qwen2" || name == "o200k";
    EXPECT_EQ(tokenizer->MinTokenCount(1 << 20) > 1000, !may_shorten);
    std::vector<std::string> texts = Texts(*tokenizer);
    for (const json& line : ReadJsonLines(TokenizerDir(name) + "/cases.jsonl")) {
      if (line.contains("text")) texts.push_back(line["text"]);
    }
    ExpectNoTextHasFewer(*tokenizer, texts);
  }
}

TEST(MinTokenCount, NoTextOfAMadeTokenizerHasFewer) {
  int num_told = 0;
  for (const MadeTokenizer& made : MadeTokenizers()) {
    SCOPED_TRACE(made.name);
    ASSERT_NE(made.tokenizer, nullptr);
    num_told += made.tokenizer->MinTokenCount(1 << 20) > 0;
    ExpectNoTextHasFewer(*made.tokenizer, Texts(*made.tokenizer));
  }
  std::printf("told of %d\n", num_told);
  EXPECT_GT(num_told, 0);
}

// The letters, with an unknown token that counts, so that nothing is dropped.
json Lossless() {
  return json::parse(R"({"model": {"unk_token": "[UNK]", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3,
                     "abc": 4, " ": 5, "[UNK]": 6}}})");
}

TEST(MinTokenCount, TheLongestTokenTells) {
  EXPECT_EQ(SmallTokenizer(Lossless())->MinTokenCount(0), 0u);
  EXPECT_EQ(SmallTokenizer(Lossless())->MinTokenCount(1), 1u);
  EXPECT_EQ(SmallTokenizer(Lossless())->MinTokenCount(51), 11u);  // 5 bytes, the length of [UNK]
  json added = Lossless();
  added["added_tokens"] = {AddedTokenJson("<|longer|>", true)};
  EXPECT_EQ(SmallTokenizer(added)->MinTokenCount(51), 6u);
}

TEST(MinTokenCount, NothingIsToldWhereATokenMayStandForAnyLength) {
  EXPECT_EQ(SmallTokenizer()->MinTokenCount(1000), 0u);  // drops unknown characters
  std::vector<json> files(7, Lossless());
  files[0]["model"]["fuse_unk"] = true;
  files[1]["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  files[2]["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "c"}};
  files[3]["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "cccc"}};
  files[4]["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  files[5]["added_tokens"] = {AddedTokenJson("<s>", true)};
  files[5]["added_tokens"][0]["lstrip"] = true;
  files[6]["post_processor"] = json::parse(R"({
    "type": "TemplateProcessing", "pair": [], "single": [{"SpecialToken": {"id": "a", "type_id": 0}}],
    "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}}})");
  for (const json& file : files) {
    const auto tokenizer = SmallTokenizer(file);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->MinTokenCount(1000), 0u) << file;
  }
}

}  // namespace
}  // namespace bulkhead
