// The tokenizers under tests/data/tokenizers, and small ones written in a test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

inline const std::vector<std::string>& TrainedTokenizers() {
  static const std::vector<std::string> names = {"deepseek", "falcon",    "gpt2",  "llama2",
                                                 "llama3",   "metaspace", "o200k", "qwen2"};
  return names;
}

std::string TokenizerDir(const std::string& name);
std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& name);
std::vector<nlohmann::json> ReadJsonLines(const std::string& path);

// Those of made/, with their cases.
struct MadeTokenizer {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;  // null: failed to load, and the test has failed
  nlohmann::json cases;
};
std::vector<MadeTokenizer> MadeTokenizers();

// A tokenizer.json over the letters a, b, c with the merges ab and abc; `changes` replace its
// fields.
nlohmann::json SmallTokenizerFile(const nlohmann::json& changes = nlohmann::json::object());
std::unique_ptr<Tokenizer> SmallTokenizer(const nlohmann::json& changes = nlohmann::json::object());
nlohmann::json AddedTokenJson(const std::string& content, bool special);

}  // namespace bulkhead
