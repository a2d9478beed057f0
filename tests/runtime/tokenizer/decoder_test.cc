// Decoding token by token gives what decoding the whole gives.
#include <gtest/gtest.h>

#include <random>

#include "runtime/tokenizer/unicode.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;

// Decoders with one interesting step each, over tokens that interest them.
std::unique_ptr<Tokenizer> Decoding(const json& decoder) {
  json file = SmallTokenizerFile();
  file["decoder"] = decoder;
  file["model"]["merges"] = json::array();
  file["model"]["vocab"] = {{"<0xE4>", 0},    {"<0xBD>", 1},       {"<0xA0>", 2},  {"<0x61>", 3},
                            {"__", 4},        {"_a", 5},           {" ", 6},       {"  b ", 7},
                            {"</w>", 8},      {"x</w>", 9},        {"", 10},       {"\xC3\xA4", 11},
                            {"\xC4\xA0", 12}, {"<0x", 13},         {"<0xGG>", 14}, {"<0x61>!", 15},
                            {"61>", 16},      {"\xE2\x96\x81", 17}};
  const auto tokenizer = Tokenizer::Parse(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *Tokenizer::Parse(file.dump()) : nullptr;
}

std::vector<json> Decoders() {
  const json fuse = {{"type", "Fuse"}}, fallback = {{"type", "ByteFallback"}};
  const json bytes = {{"type", "ByteLevel"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "__"}}}, {"content", "="}};
  const json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "_+"}}}, {"content", "-"}};
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  const json suffix = {{"type", "BPEDecoder"}, {"suffix", "</w>"}};
  std::vector<json> all = {nullptr, fuse,  fallback,  bytes, strip,
                           replace, regex, metaspace, suffix};
  const size_t singles = all.size();
  for (size_t i = 1; i < singles; ++i) {
    for (size_t j = 1; j < singles; ++j) {
      all.push_back({{"type", "Sequence"}, {"decoders", {all[i], all[j], fuse, strip, replace}}});
    }
  }
  return all;
}

TEST(Decoder, TokenByTokenEqualsTheWholeForEveryStep) {
  constexpr uint32_t kSeed = 3;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  for (const json& decoder : Decoders()) {
    const std::unique_ptr<Tokenizer> tokenizer = Decoding(decoder);
    ASSERT_NE(tokenizer, nullptr) << decoder;
    for (int round = 0; round < 60; ++round) {
      std::vector<int32_t> ids(random() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 18);
      const std::unique_ptr<TextDecoder> stream = tokenizer->NewTextDecoder(true);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string part = stream->Add(id);
        EXPECT_TRUE(IsValidUtf8(part));
        joined += part;
      }
      joined += stream->Finish();
      ASSERT_EQ(joined, tokenizer->Decode(ids, true)) << decoder;
    }
  }
}

TEST(Decoder, ByteTokensBecomeACharacterOrAReplacementEach) {
  const std::unique_ptr<Tokenizer> tokenizer = Decoding({{"type", "ByteFallback"}});
  ASSERT_NE(tokenizer, nullptr);
  const std::string r(kReplacementChar);
  EXPECT_EQ(tokenizer->Decode({0, 1, 2, 3}, true),
            "\xE4\xBD\xA0"
            "a");
  EXPECT_EQ(tokenizer->Decode({0, 1, 3}, true), r + r + r);
  EXPECT_EQ(tokenizer->Decode({0, 1, 6, 3}, true), r + r + " a");
  EXPECT_EQ(tokenizer->Decode({14, 13, 15}, true), "<0xGG><0x<0x61>!");
}

TEST(Decoder, PlainTextComesOutAtOnce) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("llama2");
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = tokenizer->Encode("the quick brown fox", false);
  ASSERT_TRUE(ids.ok());
  const std::unique_ptr<TextDecoder> stream = tokenizer->NewTextDecoder(true);
  std::string joined;
  for (const int32_t id : *ids) joined += stream->Add(id);
  EXPECT_EQ(joined, "the quick brown fox");
  EXPECT_EQ(stream->Finish(), "");
}

}  // namespace
}  // namespace bulkhead
