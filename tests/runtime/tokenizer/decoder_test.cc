// Streaming decoding gives the same text as decoding everything at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/match.h"
#include "base/utf8.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr int32_t kNumTokens = 23;

// Decoders with one step of interest each, over tokens relevant to it.
std::unique_ptr<Tokenizer> Decoding(const json& decoder) {
  json file = SmallTokenizerFile();
  file["decoder"] = decoder;
  file["model"]["merges"] = json::array();
  file["model"]["vocab"] = {{"<0xE4>", 0},    {"<0xBD>", 1},
                            {"<0xA0>", 2},    {"<0x61>", 3},
                            {"__", 4},        {"_a", 5},
                            {" ", 6},         {"  b ", 7},
                            {"</w>", 8},      {"x</w>", 9},
                            {"", 10},         {"\xC3\xA4", 11},
                            {"\xC4\xA0", 12}, {"<0x", 13},
                            {"<0xGG>", 14},   {"<0x61>!", 15},
                            {"61>", 16},      {"\xE2\x96\x81", 17},
                            {"\xC2\xBD", 18}, {"\xC2\xBD\xC2\xBD", 19},
                            {"_", 20},        {"<0x5F>", 21},
                            {"_ ", 22}};
  auto tokenizer = Tokenizer::Parse(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// Each step alone; the first one is no decoder.
std::vector<json> Steps() {
  const json fuse = {{"type", "Fuse"}}, fallback = {{"type", "ByteFallback"}};
  const json bytes = {{"type", "ByteLevel"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "__"}}}, {"content", "="}};
  const json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "_+"}}}, {"content", "-"}};
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  const json suffix = {{"type", "BPEDecoder"}, {"suffix", "</w>"}};
  const json character = {
      {"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  const json front = {{"type", "Strip"}, {"content", " "}, {"start", 3}, {"stop", 0}};
  const json never = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}};
  return {nullptr, fuse,      fallback, bytes,     strip, replace,
          regex,   metaspace, suffix,   character, front, never};
}

std::vector<json> Decoders() {
  const std::vector<json> steps = Steps();
  const json &fuse = steps[1], &strip = steps[4], &replace = steps[5];
  std::vector<json> all = steps;
  for (size_t i = 1; i < steps.size(); ++i) {
    for (size_t j = 1; j < steps.size(); ++j) {
      all.push_back(
          {{"type", "Sequence"}, {"decoders", {steps[i], steps[j], fuse, strip, replace}}});
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
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % kNumTokens);
      const std::unique_ptr<TextDecoder> stream = tokenizer->NewTextDecoder({}, true);
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

// Few different tokens make long ambiguous beginnings; ids that decode to nothing leave little at
// the end to decide.
std::vector<int32_t> RandomRuns(std::mt19937& random, size_t size) {
  std::vector<int32_t> kinds(1 + random() % 4);
  for (int32_t& kind : kinds) kind = static_cast<int32_t>(random() % kNumTokens);
  const uint32_t nothing_in_100 = std::vector<uint32_t>{0, 50, 80, 97}[random() % 4];
  std::vector<int32_t> ids;
  while (ids.size() < size) {
    const int32_t pair[2] = {kinds[random() % kinds.size()], kinds[random() % kinds.size()]};
    for (int run = 1 + random() % 40; run > 0; --run) {
      ids.push_back(random() % 100 < nothing_in_100 ? kNumTokens : pair[random() % 2]);
    }
  }
  ids.resize(size);
  return ids;
}

TEST(Decoder, AfterAnyPromptEveryStepGoesOnAsIfItHadReadAllOfIt) {
  constexpr uint32_t kSeed = 4;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  const std::vector<json> steps = Steps();
  std::vector<json> decoders = Decoders();
  for (int i = 0; i < 300; ++i) {
    json chain = json::array();
    for (int n = 1 + random() % 4; n > 0; --n) {
      chain.push_back(steps[1 + random() % (steps.size() - 1)]);
    }
    decoders.push_back({{"type", "Sequence"}, {"decoders", chain}});
  }
  for (const json& decoder : decoders) {
    const std::unique_ptr<Tokenizer> tokenizer = Decoding(decoder);
    ASSERT_NE(tokenizer, nullptr) << decoder;
    for (int round = 0; round < 100; ++round) {
      const std::vector<int32_t> ids = RandomRuns(random, random() % 700);
      const size_t cut = ids.size() - std::min<size_t>(ids.size(), random() % 10);
      const absl::Span<const int32_t> all = ids, prompt = all.first(cut);
      const std::unique_ptr<TextDecoder> after = tokenizer->NewTextDecoder(prompt, true);
      const std::unique_ptr<TextDecoder> whole = tokenizer->NewTextDecoder({}, true);
      for (const int32_t id : prompt) whole->Add(id);
      for (const int32_t id : all.subspan(cut)) {
        ASSERT_EQ(after->Add(id), whole->Add(id)) << decoder;
      }
      ASSERT_EQ(after->Finish(), whole->Finish()) << decoder;
    }
  }
}

TEST(Decoder, LittleOfALongRunOfByteTokensIsHeldBack) {
  constexpr size_t kMostHeld = 600;
  const std::unique_ptr<Tokenizer> tokenizer = Decoding({{"type", "ByteFallback"}});
  ASSERT_NE(tokenizer, nullptr);
  for (const bool is_valid : {true, false}) {
    std::vector<int32_t> ids;
    while (ids.size() < 9000) ids.insert(ids.end(), {0, 1, 2});
    if (!is_valid) ids.push_back(0);
    const std::unique_ptr<TextDecoder> decoder = tokenizer->NewTextDecoder({}, true);
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string piece = decoder->Add(ids[i]);
      ASSERT_TRUE(IsValidUtf8(piece));
      text += piece;
      ASSERT_LT(i + 1 - text.size(), kMostHeld);
    }
    text += decoder->Finish();
    EXPECT_EQ(text, tokenizer->Decode(ids, true));
    EXPECT_EQ(absl::StrContains(text, kReplacementChar), !is_valid);
    // Behind such a prompt, too.
    const std::string rest = tokenizer->NewTextDecoder(ids, true)->Finish();
    EXPECT_LT(rest.size(), 3 * kMostHeld);
    EXPECT_TRUE(absl::EndsWith(text, rest));
  }
  const std::vector<int32_t> invalid(9000, 1);
  EXPECT_LT(tokenizer->NewTextDecoder(invalid, true)->Finish().size(), 3 * kMostHeld);
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
  const std::unique_ptr<TextDecoder> stream = tokenizer->NewTextDecoder({}, true);
  std::string joined;
  for (const int32_t id : *ids) joined += stream->Add(id);
  EXPECT_EQ(joined, "the quick brown fox");
  EXPECT_EQ(stream->Finish(), "");
}

}  // namespace
}  // namespace bulkhead
