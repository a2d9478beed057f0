// No tokenizer.json can turn little text into much: that is stopped while it grows, and the error
// names the limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "runtime/tokenizer/encode_budget.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string Repeat(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

json Replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json Sequence(const char* list, const std::vector<json>& steps) {
  return {{"type", "Sequence"}, {list, steps}};
}

void ExpectTooMuch(const json& changes, const std::string& text, const std::string& doing,
                   const std::string& limit = "65536") {
  const auto tokenizer = SmallTokenizer(changes);
  ASSERT_NE(tokenizer, nullptr);
  const absl::Status status = tokenizer->Encode(text, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(doing), HasSubstr("more than " + limit)));
}

TEST(Growth, ABoundedTextNeverHoldsMoreThanItMay) {
  const Allowance allowance("testing", "bytes", 1);
  BoundedText text(allowance);
  text.Append(std::string(kAlwaysAllowed, 'a'));
  EXPECT_TRUE(text.status().ok());
  text.Append("a");
  EXPECT_FALSE(text.status().ok());
  text.Append(std::string(1 << 20, 'a'));
  EXPECT_EQ(text.size(), kAlwaysAllowed);
  EXPECT_FALSE(text.status().ok());
}

TEST(Growth, ReplacementsThatMultiplyAreStopped) {
  const json thousand = Replace("a", Repeat("a", 1000));
  ExpectTooMuch({{"normalizer", Sequence("normalizers", {thousand, thousand, thousand})}}, "a",
                "normalising 1 bytes");
  ExpectTooMuch({{"normalizer", Replace("a", Repeat("b", 33))}}, Repeat("a", 3000), "normalising",
                "96000");
  const json everywhere = {
      {"type", "Replace"}, {"pattern", {{"Regex", ""}}}, {"content", Repeat("b", 1000)}};
  ExpectTooMuch({{"normalizer", everywhere}}, Repeat("c", 100), "normalising");
}

TEST(Growth, PrefixesThatMultiplyAreStopped) {
  const json prepend = {{"type", "Prepend"}, {"prepend", Repeat("a", 1000)}};
  ExpectTooMuch({{"normalizer", Sequence("normalizers", std::vector<json>(70, prepend))}}, "b",
                "normalising");
  const json large = {{"type", "Prepend"}, {"prepend", Repeat("a", 1 << 20)}};
  ExpectTooMuch({{"normalizer", large}}, "b", "normalising");
}

TEST(Growth, CharacterStepsThatMultiplyAreStopped) {
  // Each byte of a non-ASCII character becomes such a character.
  const json bytes = {{"type", "ByteLevel"}};
  ExpectTooMuch({{"normalizer", Sequence("normalizers", std::vector<json>(12, bytes))}},
                Repeat("\xC3\xA9", 100), "normalising");
  const json compatible = {{"type", "NFKD"}};
  const json back = Replace("\xD9\x84", "\xEF\xB7\xBA");
  ExpectTooMuch({{"normalizer", Sequence("normalizers", {compatible, back, compatible, back,
                                                         compatible, back, compatible})}},
                Repeat("\xEF\xB7\xBA", 100), "normalising");
}

TEST(Growth, PartsCountTogether) {
  const json changes = {{"normalizer", Replace("b", Repeat("a", 60'000))},
                        {"added_tokens", {AddedTokenJson("<x>", true)}}};
  const auto tokenizer = SmallTokenizer(changes);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->Encode("b<x>", true).ok());
  ExpectTooMuch(changes, "b<x>b", "normalising");
}

// Shrinking an expanded text again does not help: time has the same bound.
TEST(Growth, WhatWasLongForAWhileCounts) {
  const json up = Replace("b", Repeat("a", 60'000)), down = Replace(Repeat("a", 60'000), "b");
  ExpectTooMuch({{"normalizer", Sequence("normalizers", {up, down})},
                 {"added_tokens", {AddedTokenJson("<x>", true)}}},
                "b<x>b", "normalising");
}

TEST(Growth, PreTokenizersThatMultiplyAreStopped) {
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  ExpectTooMuch({{"pre_tokenizer", Sequence("pretokenizers", std::vector<json>(12, bytes))}},
                Repeat("\xC3\xA9", 100), "pre-tokenising");
  const json apart = {{"type", "Split"},
                      {"pattern", {{"Regex", "."}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json prefix = {{"type", "Metaspace"}, {"replacement", "b"}, {"prepend_scheme", "always"}};
  std::vector<json> steps;
  for (int i = 0; i < 80; ++i) steps.insert(steps.end(), {apart, prefix});
  ExpectTooMuch({{"pre_tokenizer", Sequence("pretokenizers", steps)}}, Repeat("a", 1000),
                "pre-tokenising");
}

TEST(Growth, ATemplateThatRepeatsTheTextIsStopped) {
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json changes = {{"post_processor",
                         {{"type", "TemplateProcessing"},
                          {"single", std::vector<json>(1000, text)},
                          {"special_tokens", json::object()}}}};
  const auto tokenizer = SmallTokenizer(changes);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("ab", true)->size(), 1000u);
  ExpectTooMuch(changes, Repeat("a", 1000), "tokenising");
}

TEST(Growth, BytesOfAPrefixThatMultiplyAreStopped) {
  json vocabulary = {{"a", 0}};
  for (int byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof(token), "<0x%02X>", byte);
    vocabulary[token] = byte + 1;
  }
  json file = SmallTokenizerFile();
  file["model"] = {{"type", "BPE"},
                   {"vocab", vocabulary},
                   {"merges", json::array()},
                   {"byte_fallback", true},
                   {"continuing_subword_prefix", Repeat("#", 256)}};
  const auto tokenizer = Tokenizer::Parse(file.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("zz", false)->size(), 1u + 257u);
  const absl::Status status = (*tokenizer)->Encode(Repeat("z", 300), false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 65536 tokens"));
}

TEST(Growth, AddedTokensAreNormalizedWithinTheBound) {
  json token = AddedTokenJson("<b>", true);
  token["normalized"] = true;
  const json file = SmallTokenizerFile(
      {{"normalizer", Replace("b", Repeat("a", 70'000))}, {"added_tokens", {token}}});
  const auto tokenizer = Tokenizer::Parse(file.dump());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("added_tokens[0]"));
}

// The characters that expand most, in texts long enough that the multiple is the bound.
TEST(Growth, NoOrdinaryTokenizerComesNearTheBound) {
  const std::vector<std::string> characters = {" ",
                                               "\n",
                                               "\xC3\xA9",
                                               "\xC4\xB0",
                                               "\xE2\x96\x81",
                                               "\xEF\xB7\xBA",
                                               "\xE0\xBD\xB3",
                                               "\xF0\x9D\x85\xA0",
                                               "a "};
  const auto expect_fits = [&](const std::string& name, const Tokenizer& tokenizer) {
    for (const std::string& character : characters) {
      const auto ids = tokenizer.Encode(Repeat(character, 4000), true);
      if (!ids.ok()) {  // the only other possible error
        EXPECT_THAT(std::string(ids.status().message()), HasSubstr("unk_token")) << name;
      }
    }
  };
  for (const std::string& name : TrainedTokenizers()) expect_fits(name, *LoadTokenizer(name));
  for (const MadeTokenizer& made : MadeTokenizers()) expect_fits(made.name, *made.tokenizer);
  const json normalizer = {{"type", "NFKD"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const auto tokenizer = SmallTokenizer({{"normalizer", normalizer}, {"pre_tokenizer", bytes}});
  ASSERT_NE(tokenizer, nullptr);
  expect_fits("NFKD and ByteLevel", *tokenizer);
}

}  // namespace
}  // namespace bulkhead
