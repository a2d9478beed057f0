#include "runtime/structured/token_trie.h"

#include <algorithm>

namespace bulkhead::structured {
namespace {

template <typename T>
size_t BytesOf(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

}  // namespace

TokenTrie::TokenTrie(absl::Span<const std::string> tokens) {
  offsets_.reserve(tokens.size() + 1);
  offsets_.push_back(0);
  std::vector<int32_t> short_ids, long_ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (!token.empty() && token.size() <= kMaxTokenBytes) {
      text_ += token;
      (token.size() <= kShortTokenBytes ? short_ids : long_ids).push_back(static_cast<int32_t>(id));
    }
    offsets_.push_back(static_cast<uint32_t>(text_.size()));
  }
  text_.shrink_to_fit();
  parts_[0] = MakePart(tokens, std::move(short_ids));
  parts_[1] = MakePart(tokens, std::move(long_ids));
}

absl::string_view TokenTrie::token(int32_t id) const {
  return absl::string_view(text_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

TokenTrie::Part TokenTrie::MakePart(absl::Span<const std::string> tokens,
                                    std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const int order = tokens[a].compare(tokens[b]);
    return order != 0 ? order < 0 : a < b;
  });
  Part part;
  std::vector<uint32_t> open;  // nodes from the root to the last token
  absl::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      part.skip[open.back()] = static_cast<uint32_t>(part.byte.size());
    }
  };
  for (const int32_t id : ids) {
    const absl::string_view token = tokens[id];
    const size_t shorter = std::min(token.size(), last.size());
    const size_t common =
        std::mismatch(token.begin(), token.begin() + shorter, last.begin()).first - token.begin();
    close(common);
    for (size_t i = common; i < token.size(); ++i) {
      open.push_back(static_cast<uint32_t>(part.byte.size()));
      part.byte.push_back(static_cast<uint8_t>(token[i]));
      part.depth.push_back(static_cast<uint8_t>(i + 1));
      part.skip.push_back(0);
      part.first_token.push_back(static_cast<uint32_t>(part.tokens.size()));
    }
    part.tokens.push_back(id);
    last = token;
    part.max_bytes = std::max(part.max_bytes, static_cast<int>(token.size()));
    const auto opens =
        std::count_if(token.begin(), token.end(), [](char c) { return c == '{' || c == '['; });
    part.max_opens = std::max(part.max_opens, static_cast<int>(opens));
  }
  close(0);
  part.first_token.push_back(static_cast<uint32_t>(part.tokens.size()));
  part.byte.shrink_to_fit();
  part.depth.shrink_to_fit();
  part.skip.shrink_to_fit();
  part.first_token.shrink_to_fit();
  part.tokens.shrink_to_fit();
  return part;
}

size_t TokenTrie::bytes() const {
  size_t bytes = sizeof(*this) + text_.capacity() + BytesOf(offsets_);
  for (const Part& part : parts_) {
    bytes += BytesOf(part.byte) + BytesOf(part.depth) + BytesOf(part.skip) +
             BytesOf(part.first_token) + BytesOf(part.tokens);
  }
  return bytes;
}

}  // namespace bulkhead::structured
