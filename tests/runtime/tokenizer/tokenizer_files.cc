#include "tests/runtime/tokenizer/tokenizer_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "absl/status/statusor.h"

namespace bulkhead {

using nlohmann::json;

std::string TokenizerDir(const std::string& name) {
  return std::string(BH_TEST_DATA) + "/tokenizers/" + name;
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& name) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(TokenizerDir(name));
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<json> ReadJsonLines(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_FALSE(lines.back().is_discarded()) << path;
  }
  return lines;
}

std::vector<MadeTokenizer> MadeTokenizers() {
  const json models = ReadJsonLines(TokenizerDir("made") + "/models.json").at(0);
  std::vector<MadeTokenizer> all;
  for (json& line : ReadJsonLines(TokenizerDir("made") + "/cases.jsonl")) {
    json file = line["file"];
    file["model"] = models[file["model"].get<std::string>()];
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(file.dump());
    EXPECT_TRUE(tokenizer.ok()) << line["name"] << ": " << tokenizer.status();
    all.push_back(
        {line["name"], tokenizer.ok() ? *std::move(tokenizer) : nullptr, std::move(line["cases"])});
  }
  EXPECT_GT(all.size(), 80u);
  return all;
}

json SmallTokenizerFile(const json& changes) {
  json file = json::parse(R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, " ": 5},
              "merges": ["a b", "ab c"]}})");
  file.merge_patch(changes);
  return file;
}

std::unique_ptr<Tokenizer> SmallTokenizer(const json& changes) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Parse(SmallTokenizerFile(changes).dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

json AddedTokenJson(const std::string& content, bool special) {
  return {{"id", 0},         {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace bulkhead
