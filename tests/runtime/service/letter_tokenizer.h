// A tokenizer whose ids are bytes; prepends 256 if special tokens are requested.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

class LetterTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kBegin = 256;
  static constexpr int kVocabSize = 257;

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special_tokens) const override {
    if (text == "too hard") return absl::ResourceExhaustedError("the match limit was reached");
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(kBegin);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < kBegin) text.push_back(static_cast<char>(id));
      if (id == kBegin && !skip_special_tokens) text += "<s>";
    }
    return text;
  }
  int vocab_size() const override { return kVocabSize; }
  std::string TokenOf(int32_t id) const override { return absl::StrCat("#", id); }
};

}  // namespace bulkhead
