// TokenTrie: the bytes of a vocabulary's tokens as a tree. Built once per model. Immutable;
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead::structured {

class TokenTrie {
 public:
  // Longer tokens are never allowed.
  static constexpr size_t kMaxTokenBytes = 255;
  // Few tokens are longer; they have a separate tree, so that the state of a count (of characters,
  // of items) matters to most tokens only near its end.
  static constexpr size_t kShortTokenBytes = 16;

  // In depth-first order: a node's subtree is [i, skip[i]).
  struct Part {
    std::vector<uint8_t> byte;
    std::vector<uint8_t> depth;  // bytes from the root, at least 1
    std::vector<uint32_t> skip;
    std::vector<uint32_t> first_token;  // in `tokens`; one more than nodes
    std::vector<int32_t> tokens;
    int max_bytes = 0;  // longest token
    int max_opens = 0;  // most `{` and `[` in a token
  };

  // The bytes of each id. Empty for tokens that stand for no text (special ones): never allowed.
  explicit TokenTrie(absl::Span<const std::string> tokens);

  int vocab_size() const { return static_cast<int>(offsets_.size()) - 1; }
  // The bytes of an id below vocab_size(). Also empty for tokens that are too long.
  absl::string_view token(int32_t id) const;
  const std::array<Part, 2>& parts() const { return parts_; }
  size_t bytes() const;  // memory: about 35 bytes per token

 private:
  static Part MakePart(absl::Span<const std::string> tokens, std::vector<int32_t> ids);

  std::string text_;
  std::vector<uint32_t> offsets_;
  std::array<Part, 2> parts_;
};

}  // namespace bulkhead::structured
