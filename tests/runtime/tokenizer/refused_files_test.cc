// A broken or unsupported tokenizer.json is refused with the name of its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/exit_code.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

void ExpectRefused(const std::string& text, absl::StatusCode code, const std::string& names) {
  const auto tokenizer = Tokenizer::Parse(text);
  ASSERT_FALSE(tokenizer.ok()) << text.substr(0, 200);
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(names));
  EXPECT_EQ(ExitCodeOf(tokenizer.status()), ExitCode::kModelRefused);
}

void ExpectInvalid(const json& changes, const std::string& names) {
  ExpectRefused(SmallTokenizerFile(changes).dump(), absl::StatusCode::kInvalidArgument, names);
}

void ExpectUnsupported(const json& changes, const std::string& names) {
  ExpectRefused(SmallTokenizerFile(changes).dump(), absl::StatusCode::kUnimplemented, names);
}

TEST(RefusedFiles, AMissingFileIsNotFound) {
  const auto tokenizer = Tokenizer::Load(TokenizerDir("made"));
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer.json"));
}

TEST(RefusedFiles, WhateverIsWrongIsSaidWithTheFilesPath) {
  const std::string dir = testing::TempDir() + "/a_tokenizers_folder";
  std::filesystem::create_directories(dir);
  const std::string path = dir + "/tokenizer.json";
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string(10'000'000, '['),
        SmallTokenizerFile({{"model", {{"type", "Unigram"}}}}).dump(),
        SmallTokenizerFile({{"decoder", {{"type", "Strip"}, {"content", "ab"}}}}).dump()}) {
    std::ofstream(path, std::ios::binary) << text;
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_THAT(std::string(tokenizer.status().message()), StartsWith(path + ": "));
    EXPECT_EQ(ExitCodeOf(tokenizer.status()), ExitCode::kModelRefused);
  }
  std::filesystem::remove_all(dir);
}

TEST(RefusedFiles, WhatCameInPlaceOfADownloadIsNamed) {
  ExpectRefused("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
                absl::StatusCode::kInvalidArgument, "tokenizer.json: is a Git LFS pointer");
  ExpectRefused("<!doctype html><html></html>", absl::StatusCode::kInvalidArgument,
                "tokenizer.json: is an HTML page");
}

TEST(RefusedFiles, AnOldUnigramFileThatNamesNoTypeIsRefusedAsWhatItIs) {
  json file = SmallTokenizerFile();
  file["model"] = {{"unk_id", 2}, {"vocab", {{"<pad>", 0.0}, {"</s>", 0.0}, {"<unk>", 0.0}}}};
  ExpectRefused(file.dump(), absl::StatusCode::kUnimplemented, "Unigram is not supported");
}

// Traversing such a tree would overflow the stack.
TEST(RefusedFiles, JsonThatIsNestedTooDeepIsRefused) {
  const std::string deep(10'000'000, '['), closed = deep + std::string(deep.size(), ']');
  ExpectRefused(deep, absl::StatusCode::kInvalidArgument, "more than 128 levels (byte 128)");
  json file = SmallTokenizerFile();
  file["model"]["merges"] = json::array({"HERE"});
  std::string text = file.dump();
  text.replace(text.find("\"HERE\""), 6, closed);
  ExpectRefused(text, absl::StatusCode::kInvalidArgument, "more than 128 levels");
  ExpectRefused(closed, absl::StatusCode::kInvalidArgument, "tokenizer.json");
}

TEST(RefusedFiles, BracketsInStringsAreNoNesting) {
  const std::string brackets = std::string(200, '[') + "\\\"" + std::string(200, '{');
  EXPECT_NE(SmallTokenizer({{"model", {{"vocab", {{brackets, 6}}}}}}), nullptr);
}

TEST(RefusedFiles, JsonOfTooManyValuesIsRefused) {
  std::string text = "{\"model\": [0";
  for (int i = 0; i < 20'000'000; ++i) text += ",0";
  ExpectRefused(text + "]}", absl::StatusCode::kInvalidArgument, "more than 20000000 values");
}

TEST(RefusedFiles, MessagesStayShort) {
  const json long_list(100'000, 1);
  for (const json& changes : {json{{"model", {{"merges", {long_list}}}}},
                              json{{"model", {{"vocab", {{"z", long_list}}}}}}}) {
    const auto tokenizer = Tokenizer::Parse(SmallTokenizerFile(changes).dump());
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_LT(tokenizer.status().message().size(), 300u);
  }
}

TEST(RefusedFiles, WhatIsNotATokenizerIsRefused) {
  for (const char* text : {"", "{", "[]", "null", "\"a\"", "{\"model\": \"\xFF\"}"}) {
    EXPECT_FALSE(Tokenizer::Parse(text).ok()) << text;
  }
  ExpectRefused("{}", absl::StatusCode::kInvalidArgument, "model");
  ExpectRefused("{\"model\": [}", absl::StatusCode::kInvalidArgument, "JSON");
}

TEST(RefusedFiles, PartsThatAreNotThereAreNamed) {
  ExpectUnsupported({{"model", {{"type", "WordPiece"}}}}, "WordPiece");
  ExpectUnsupported({{"model", {{"type", "Unigram"}}}}, "Unigram");
  ExpectUnsupported({{"model", {{"type", "WordLevel"}}}}, "WordLevel");
  ExpectUnsupported({{"model", {{"dropout", 0.5}}}}, "dropout");
  ExpectUnsupported({{"version", "2.0"}}, "2.0");
  for (const char* type : {"BertNormalizer", "Precompiled", "Nmt", "Sequences"}) {
    ExpectUnsupported({{"normalizer", {{"type", type}}}}, type);
  }
  for (const char* type : {"UnicodeScripts", "CharDelimiterSplit", "FixedLength"}) {
    ExpectUnsupported({{"pre_tokenizer", {{"type", type}}}}, type);
  }
  for (const char* type : {"WordPiece", "CTC"}) {
    ExpectUnsupported({{"decoder", {{"type", type}}}}, type);
  }
  ExpectUnsupported({{"post_processor", {{"type", "Unknown"}}}}, "Unknown");
  ExpectUnsupported({{"pre_tokenizer",
                      {{"type", "Sequence"},
                       {"pretokenizers",
                        {{{"type", "Split"},
                          {"pattern", {{"Regex", "\\X"}}},
                          {"behavior", "Isolated"},
                          {"invert", false}}}}}}},
                    "pre_tokenizer.pretokenizers[0].pattern.Regex");
}

TEST(RefusedFiles, VocabulariesThatLieAreRefused) {
  ExpectInvalid({{"model", {{"vocab", {{"z", -1}}}}}}, "\"z\"");
  ExpectInvalid({{"model", {{"vocab", {{"z", 4'000'000'000}}}}}}, "\"z\"");
  ExpectInvalid({{"model", {{"vocab", {{"z", 1e300}}}}}}, "\"z\"");
  ExpectInvalid({{"model", {{"vocab", {{"z", "1"}}}}}}, "\"z\"");
  ExpectInvalid({{"model", {{"vocab", {{"z", 1}}}}}}, "same id 1");
  ExpectUnsupported({{"model", {{"vocab", json::array()}}}}, "model.vocab");
  json file = SmallTokenizerFile();
  file["model"].erase("merges");
  ExpectRefused(file.dump(), absl::StatusCode::kInvalidArgument, "merges");
}

TEST(RefusedFiles, PartsThatWouldMakeMuchOfLittleAreRefused) {
  ExpectInvalid({{"model", {{"end_of_word_suffix", std::string(257, 'w')}}}}, "end_of_word_suffix");
  const json special = {{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}};
  ExpectInvalid(
      {{"post_processor",
        {{"type", "TemplateProcessing"},
         {"single", std::vector<json>(5, special)},
         {"special_tokens", {{"s", {{"id", "s"}, {"ids", std::vector<int>(1000, 1)}}}}}}}},
      "special tokens");
  for (const char* kind : {"String", "Regex"}) {
    const json thousand = {
        {"type", "Replace"}, {"pattern", {{kind, "a"}}}, {"content", std::string(1000, 'a')}};
    const json twice = {{"type", "Sequence"}, {"decoders", {thousand, thousand}}};
    ExpectUnsupported({{"decoder", twice}}, "file.decoder");
    EXPECT_NE(SmallTokenizer({{"decoder", thousand}}), nullptr);
  }
}

TEST(RefusedFiles, MergesThatLieAreRefused) {
  for (const json& merges :
       {json{"a z"}, json{"z a"}, json{"b a"}, json{"ab"}, json{"a b c"}, json{""}, json{1},
        json{json{"a"}}, json{json{"a", "b", "c"}}, json{json{"a", 1}}, json{json{"a", "b"}, "a b"},
        json{{"a", "b"}}, json{nullptr}}) {
    ExpectInvalid({{"model", {{"merges", merges}}}}, "model.merges");
  }
  ExpectInvalid({{"model", {{"merges", "a b"}}}}, "model.merges");
  ExpectInvalid({{"model", {{"continuing_subword_prefix", "####"}}}}, "model.merges");
}

TEST(RefusedFiles, AddedTokensThatLieAreRefused) {
  for (const char* field :
       {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}) {
    json token = AddedTokenJson("<x>", true);
    token[field] = 7;
    ExpectInvalid({{"added_tokens", {token}}}, field);
    token.erase(field);
    ExpectInvalid({{"added_tokens", {token}}}, field);
  }
  for (const json& id : {json(-1), json(1LL << 40), json("0"), json(0.5)}) {
    json token = AddedTokenJson("<x>", true);
    token["id"] = id;
    ExpectInvalid({{"added_tokens", {token}}}, "added_tokens[0].id");
  }
  ExpectInvalid({{"added_tokens", 3}}, "added_tokens");
}

// Each of their bytes would take a hundred of memory.
TEST(RefusedFiles, AddedTokensOfTooManyBytesAreRefused) {
  constexpr size_t kMost = size_t{4} << 20;
  const std::string half(kMost / 2, 'x');
  ExpectInvalid({{"added_tokens", {AddedTokenJson(std::string(kMost + 1, 'x'), true)}}},
                "added_tokens has tokens of 4194305 bytes in all; at most 4194304 are supported");
  ExpectInvalid({{"added_tokens", {AddedTokenJson(half, true), AddedTokenJson(half + "y", true)}}},
                "tokens of 4194305 bytes in all");
  json normalised = AddedTokenJson(std::string(300'000, 'x'), false);
  normalised["normalized"] = true;
  const json long_ones = {
      {"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", std::string(20, 'y')}};
  ExpectInvalid({{"normalizer", long_ones}, {"added_tokens", {normalised}}},
                "tokens of 6000000 bytes, normalised, in all");
}

TEST(RefusedFiles, TemplatesThatLieAreRefused) {
  const auto with = [](const json& ids) -> json {
    return {{"post_processor",
             {{"type", "TemplateProcessing"},
              {"single", {{{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}}}},
              {"special_tokens", {{"s", {{"id", "s"}, {"ids", ids}}}}}}}};
  };
  EXPECT_NE(SmallTokenizer(with({0})), nullptr);
  ExpectInvalid(with({6}), "special_tokens.s.ids[0]");
  ExpectInvalid(with({-1}), "special_tokens.s.ids[0]");
  ExpectInvalid(with("a"), "special_tokens.s.ids");
  ExpectInvalid({{"post_processor", {{"type", "BertProcessing"}, {"cls", {"a", 0}}}}}, "sep");
}

TEST(RefusedFiles, DeepNestingIsRefused) {
  const std::pair<const char*, const char*> lists[] = {{"normalizer", "normalizers"},
                                                       {"pre_tokenizer", "pretokenizers"},
                                                       {"decoder", "decoders"},
                                                       {"post_processor", "processors"}};
  for (const auto& [part, list] : lists) {
    json nested = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    for (int i = 0; i < 30; ++i) nested = {{"type", "Sequence"}, {list, json::array({nested})}};
    ExpectInvalid({{part, nested}}, "too deep");
  }
}

// Each calls the next one.
TEST(RefusedFiles, LongChainsOfDecodersAreRefused) {
  const auto chain = [](size_t steps) -> json {
    const json::array_t all(steps,
                            {{"type", "Strip"}, {"content", "x"}, {"start", 0}, {"stop", 0}});
    return {{"decoder", {{"type", "Sequence"}, {"decoders", all}}}};
  };
  EXPECT_NE(SmallTokenizer(chain(64)), nullptr);
  ExpectInvalid(chain(65), "the limit is 64 steps");
  ExpectInvalid(chain(1'000'000), "the limit is 64 steps");
}

TEST(RefusedFiles, ContradictionsAreRefused) {
  const json metaspace = {{"type", "Metaspace"},
                          {"replacement", "_"},
                          {"prepend_scheme", "always"},
                          {"add_prefix_space", false}};
  ExpectInvalid({{"pre_tokenizer", metaspace}}, "add_prefix_space");
  json two = metaspace;
  two["replacement"] = "__";
  ExpectInvalid({{"decoder", two}}, "replacement");
  ExpectInvalid({{"decoder", {{"type", "Strip"}, {"content", "a"}, {"start", -1}, {"stop", 0}}}},
                "start");
}

// However a file is damaged, it loads or is refused; if loaded, it works or returns an error.
TEST(RefusedFiles, DamagedFilesDoNoHarm) {
  constexpr uint32_t kSeed = 20240607;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  const std::string whole = SmallTokenizerFile({{"added_tokens", {AddedTokenJson("<x>", true)}},
                                                {"normalizer", {{"type", "NFC"}}},
                                                {"pre_tokenizer",
                                                 {{"type", "Split"},
                                                  {"pattern", {{"Regex", "a+|[^\\sb]"}}},
                                                  {"behavior", "Isolated"},
                                                  {"invert", false}}}})
                                .dump();
  int loaded = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 128);
          break;
        case 1:
          text.erase(at, 1 + random() % 4);
          break;
        default:
          text.insert(at, 1, "0-9\"{}[],:ae+"[random() % 13]);
          break;
      }
    }
    const auto tokenizer = Tokenizer::Parse(text);
    if (!tokenizer.ok()) continue;
    ++loaded;
    const auto ids = (*tokenizer)->Encode("abc <x> aab\xC3\xA9", true);
    if (ids.ok()) (*tokenizer)->Decode(*ids, false);
  }
  EXPECT_GT(loaded, 100);
}

}  // namespace
}  // namespace bulkhead
