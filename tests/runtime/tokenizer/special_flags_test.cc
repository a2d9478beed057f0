// add_bos_token and add_eos_token of tokenizer_config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kText = 4;  // "abc" of the small tokenizer
constexpr int32_t kBos = 6;
constexpr int32_t kEos = 7;

class SpecialFlags : public testing::Test {
 protected:
  SpecialFlags() {
    std::filesystem::create_directories(dir_);
    file_ = SmallTokenizerFile(
        {{"added_tokens", {AddedTokenJson("<s>", true), AddedTokenJson("</s>", true)}}});
  }
  ~SpecialFlags() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const json& content) {
    std::ofstream(dir_ + "/" + name) << content.dump();
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load(json config) {
    Write("tokenizer.json", file_);
    if (config.is_object() && !config.contains("tokenizer_class")) {
      config["tokenizer_class"] = "LlamaTokenizerFast";
    }
    Write("tokenizer_config.json", config);
    return Tokenizer::Load(dir_);
  }
  // The ids of "abc", with the special tokens or without.
  std::vector<int32_t> Ids(const json& config, bool add_special_tokens = true) {
    const auto tokenizer = Load(config);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->Encode("abc", add_special_tokens).value();
  }

  const std::string dir_ = testing::TempDir() + "/special_flags";
  json file_;
};

TEST_F(SpecialFlags, TheyPutTheirTokensAroundATextWhateverThePostProcessorIs) {
  const json both = {{"add_bos_token", true},
                     {"bos_token", "<s>"},
                     {"add_eos_token", true},
                     {"eos_token", {{"__type", "AddedToken"}, {"content", "</s>"}}}};
  for (const json& processor :
       {json(nullptr), json{{"type", "ByteLevel"}},
        json{{"type", "BertProcessing"}, {"cls", {"</s>", kEos}}, {"sep", {"<s>", kBos}}}}) {
    file_["post_processor"] = processor;
    EXPECT_THAT(Ids(both), ElementsAre(kBos, kText, kEos));
    EXPECT_THAT(Ids(both, false), ElementsAre(kText));
    json one = both;
    one.erase("add_eos_token");
    EXPECT_THAT(Ids(one), ElementsAre(kBos, kText));
    one["add_bos_token"] = false;
    EXPECT_THAT(Ids(one), ElementsAre(kText));
    json other = both;
    other.erase("add_bos_token");  // e5-mistral
    EXPECT_THAT(Ids(other), ElementsAre(kBos, kText, kEos));
  }
}

// Qwen3-Embedding appends an EOS by its post-processor and has add_bos_token false.
TEST_F(SpecialFlags, OfAnotherClassTheyDoNotCount) {
  file_["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single",
                              {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                               {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
                             {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", {kEos}}}}}}};
  for (const char* name : {"Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast"}) {
    EXPECT_THAT(Ids({{"tokenizer_class", name}, {"add_bos_token", false}, {"bos_token", "<s>"}}),
                ElementsAre(kText, kEos));
  }
}

TEST_F(SpecialFlags, WithoutThemThePostProcessorCounts) {
  file_["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {"<s>", kBos}}, {"sep", {"</s>", kEos}}};
  EXPECT_THAT(Ids({{"bos_token", "<s>"}}), ElementsAre(kBos, kText, kEos));
}

TEST_F(SpecialFlags, ATokenThatTheConfigLacksIsTheOlderFilesOrNone) {
  EXPECT_THAT(Ids({{"add_bos_token", true}, {"bos_token", nullptr}}), ElementsAre(kText));
  Write("special_tokens_map.json", {{"bos_token", {{"content", "<s>"}}}});
  EXPECT_THAT(Ids({{"add_bos_token", true}}), ElementsAre(kBos, kText));
}

TEST_F(SpecialFlags, WhatIsWrongIsNamed) {
  for (const auto& [config, word] : std::vector<std::pair<json, std::string>>{
           {{{"add_bos_token", "yes"}}, "tokenizer_config.json.add_bos_token"},
           {{{"add_bos_token", true}, {"bos_token", "<none>"}}, "\"<none>\""},
           {{{"add_bos_token", true}, {"bos_token", 7}}, "tokenizer_config.json.bos_token"},
           {json::array(), "tokenizer_config.json"}}) {
    const auto tokenizer = Load(config);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(word));
  }
  std::ofstream(dir_ + "/tokenizer_config.json")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  EXPECT_THAT(std::string(Tokenizer::Load(dir_).status().message()),
              HasSubstr("tokenizer_config.json: is a Git LFS pointer"));
}

}  // namespace
}  // namespace bulkhead
