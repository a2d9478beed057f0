// BpeModel: the byte-pair encoding of a tokenizer.json: vocabulary and merges. Immutable;
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

class BpeModel {
 public:
  static absl::StatusOr<std::unique_ptr<const BpeModel>> Read(const JsonPart& part);

  // Working memory of one encoding, reused from word to word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous, next;  // -1: none
      bool removed;
    };
    struct Merge {
      uint32_t rank;
      int32_t position;  // of the left symbol
      int32_t id;        // of the merged symbol
    };
    std::vector<Symbol> symbols;
    std::vector<Merge> queue;  // a heap
    std::string text;
  };
  // Appends the ids of `word` (valid UTF-8). O(n log n). INVALID_ARGUMENT for a character outside
  // the vocabulary if there is no unk_token; RESOURCE_EXHAUSTED for more ids than `allowance`
  // allows.
  absl::Status Tokenize(absl::string_view word, const Allowance& allowance, Scratch& scratch,
                        std::vector<int32_t>* ids) const;

  // Maximum bytes of a word per id; 0: unbounded, as characters may be dropped, or many become one
  // unknown. `byte_characters`: words consist of byte-level characters only.
  size_t MaxBytesOfToken(bool byte_characters) const;

  int32_t size() const { return static_cast<int32_t>(ids_.size()); }       // number of entries
  int32_t end_id() const { return static_cast<int32_t>(tokens_.size()); }  // largest id + 1
  std::optional<int32_t> Id(absl::string_view token) const;
  // Null for an id that is not in the vocabulary.
  const std::string* Token(int32_t id) const;

 private:
  struct Rank {
    uint32_t rank;
    int32_t id;
  };

  static uint64_t PairKey(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  absl::Status ReadVocabulary(const JsonPart& part);
  absl::Status ReadMerges(const JsonPart& part);
  absl::Status ReadOptions(const JsonPart& part);
  absl::Status AddMerge(const JsonPart& part, absl::string_view left, absl::string_view right);
  void IndexCharacters();

  const Rank* FindMerge(int32_t left, int32_t right) const;
  std::optional<int32_t> CharacterId(absl::string_view character, bool first, bool last,
                                     std::string* written) const;
  absl::Status WriteSymbols(absl::string_view word, const Allowance& allowance, size_t before,
                            Scratch& scratch) const;
  void MergeSymbols(Scratch& scratch) const;

  std::vector<std::string> tokens_;                      // by id
  std::vector<bool> has_token_;                          // by id
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // views of tokens_
  absl::flat_hash_map<uint64_t, Rank> merges_;           // left id << 32 | right id
  uint32_t num_merges_ = 0;
  absl::flat_hash_map<char32_t, int32_t> character_ids_;
  std::array<int32_t, 0x180> low_character_ids_{};  // -1: none
  std::array<int32_t, 256> byte_ids_{};             // ids of <0x00> and so on; -1: none

  std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
  std::optional<std::string> unk_token_;
  std::optional<int32_t> unk_id_;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace bulkhead
