#include "runtime/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/byte_level.h"

namespace bulkhead {
namespace {

// Heap order: lowest rank first, then leftmost.
bool ComesLater(const BpeModel::Scratch::Merge& a, const BpeModel::Scratch::Merge& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

std::optional<int32_t> BpeModel::Id(absl::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* BpeModel::Token(int32_t id) const {
  if (id < 0 || id >= end_id() || !has_token_[id]) return nullptr;
  return &tokens_[id];
}

size_t BpeModel::MaxBytesOfToken(bool byte_characters) const {
  constexpr size_t kMaxCharBytes = 4;
  // With an affix the words differ, and may not be in the vocabulary.
  bool knows_all = byte_characters && prefix_.empty() && suffix_.empty();
  for (int byte = 0; knows_all && byte < 256; ++byte) {
    knows_all = Id(ByteLevelChar(static_cast<uint8_t>(byte))).has_value();
  }
  const bool spells_all = byte_fallback_ && std::all_of(byte_ids_.begin(), byte_ids_.end(),
                                                        [](int32_t id) { return id >= 0; });
  // An unknown character counts as its spelling: it may be merged.
  const bool counts_unknowns =
      unk_id_.has_value() && !fuse_unk_ && unk_token_->size() >= kMaxCharBytes;
  if (!knows_all && !spells_all && !counts_unknowns) return 0;
  size_t most = 1;
  for (const std::string& token : tokens_) most = std::max(most, token.size());
  return most;
}

const BpeModel::Rank* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// The id of one character of a word. `written` is set to its spelling in the vocabulary if that has
// prefixes or suffixes, which byte fallback also spells out.
std::optional<int32_t> BpeModel::CharacterId(absl::string_view character, bool first, bool last,
                                             std::string* written) const {
  const bool plain = (first || prefix_.empty()) && (!last || suffix_.empty());
  if (!plain) {
    *written = absl::StrCat(first ? "" : prefix_, character, last ? suffix_ : "");
    return Id(*written);
  }
  *written = std::string(character);
  size_t position = 0;
  const char32_t c = NextChar(character, &position);
  if (c < low_character_ids_.size()) {
    const int32_t id = low_character_ids_[c];
    return id < 0 ? std::nullopt : std::optional<int32_t>(id);
  }
  const auto found = character_ids_.find(c);
  if (found == character_ids_.end()) return std::nullopt;
  return found->second;
}

// `before`: ids of earlier words.
absl::Status BpeModel::WriteSymbols(absl::string_view word, const Allowance& allowance,
                                    size_t before, Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](int32_t id) {
    const int32_t at = static_cast<int32_t>(symbols.size());
    if (at > 0) symbols.back().next = at;
    symbols.push_back({id, at - 1, -1, false});
  };
  bool unknown_pending = false;
  for (size_t position = 0; position < word.size();) {
    const size_t begin = position;
    position += CharBytes(word[position]);
    const std::optional<int32_t> id = CharacterId(word.substr(begin, position - begin), begin == 0,
                                                  position == word.size(), &scratch.text);
    if (id.has_value()) {
      if (std::exchange(unknown_pending, false)) add(*unk_id_);
      add(*id);
      continue;
    }
    if (byte_fallback_ && std::all_of(scratch.text.begin(), scratch.text.end(), [&](char byte) {
          return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
        })) {
      // A prefix or suffix can give many symbols per character.
      BH_RETURN_IF_ERROR(allowance.Check(before + symbols.size() + scratch.text.size()));
      // As in the reference, an unknown token before these bytes is emitted after them.
      for (const char byte : scratch.text) add(byte_ids_[static_cast<uint8_t>(byte)]);
      continue;
    }
    if (!unk_token_.has_value()) continue;
    if (!unk_id_.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("the vocabulary has neither \"", scratch.text,
                                                     "\" nor the unk_token \"", *unk_token_, "\""));
    }
    if (unknown_pending && !fuse_unk_) add(*unk_id_);
    unknown_pending = true;
  }
  if (unknown_pending) add(*unk_id_);
  return absl::OkStatus();
}

void BpeModel::MergeSymbols(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Merge>& queue = scratch.queue;
  queue.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const Rank* merge = FindMerge(symbols[i].id, symbols[i + 1].id); merge != nullptr) {
      queue.push_back({merge->rank, static_cast<int32_t>(i), merge->id});
    }
  }
  std::make_heap(queue.begin(), queue.end(), ComesLater);
  const auto push = [&](int32_t position, const Rank& merge) {
    queue.push_back({merge.rank, position, merge.id});
    std::push_heap(queue.begin(), queue.end(), ComesLater);
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), ComesLater);
    const Scratch::Merge top = queue.back();
    queue.pop_back();
    Scratch::Symbol& left = symbols[top.position];
    if (left.removed || left.next < 0) continue;
    Scratch::Symbol& right = symbols[left.next];
    // The pair may have changed since it was queued. A different pair with the same merge result is
    // accepted, as in the reference.
    const Rank* const current = FindMerge(left.id, right.id);
    if (current == nullptr || current->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.removed = true;
    if (left.previous >= 0) {
      const Rank* const merge = FindMerge(symbols[left.previous].id, left.id);
      if (merge != nullptr) push(left.previous, *merge);
    }
    if (left.next >= 0) {
      symbols[left.next].previous = top.position;
      const Rank* const merge = FindMerge(left.id, symbols[left.next].id);
      if (merge != nullptr) push(top.position, *merge);
    }
  }
}

absl::Status BpeModel::Tokenize(absl::string_view word, const Allowance& allowance,
                                Scratch& scratch, std::vector<int32_t>* ids) const {
  if (word.empty()) return absl::OkStatus();
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = Id(word); id.has_value()) {
      ids->push_back(*id);
      return absl::OkStatus();
    }
  }
  BH_RETURN_IF_ERROR(WriteSymbols(word, allowance, ids->size(), scratch));
  MergeSymbols(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (!symbol.removed) ids->push_back(symbol.id);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
