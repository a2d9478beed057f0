// AddedTokens: the "added_tokens" of a tokenizer.json: strings that are matched as tokens anywhere
// in a text. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/aho_corasick.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/normalizer.h"

namespace bulkhead {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string matched;  // the content, or its normalised form if `normalized`
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

class AddedTokens {
 public:
  // Ids are assigned as in the reference library: the vocabulary's if it has the content
  // (`model_id`), else continuing from the vocabulary's size.
  static absl::StatusOr<AddedTokens> Read(
      const JsonPart& part, int32_t model_size,
      const std::function<std::optional<int32_t>(absl::string_view)>& model_id,
      const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

  struct Segment {
    size_t begin, end;
    const AddedToken* token;  // null: text between tokens
  };
  // Splits `text` at the tokens matched before (kRaw) or after normalisation.
  enum class Stage { kRaw, kNormalized };
  std::vector<Segment> Cut(Stage stage, absl::string_view text) const;

 private:
  struct Matcher {
    std::vector<int> tokens;  // by pattern, index in tokens_
    std::shared_ptr<const AhoCorasick> automaton;
  };
  std::vector<AddedToken> tokens_;
  Matcher matchers_[2];
};

}  // namespace bulkhead
