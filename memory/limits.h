// The limits of a group: what a step, a sequence and the KV pool hold at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/arithmetic.h"

namespace bulkhead {

// Layers whose keys and values are in the same blocks: they share a block table.
struct KvGroup {
  int num_layers = 0;
  int window = 0;  // last tokens that a token attends to, itself included; 0: all
  bool operator==(const KvGroup&) const = default;
};

struct Limits {
  int max_num_seqs = 0;            // sequences with a slot
  int max_model_len = 0;           // prompt and generated tokens of one sequence
  int max_num_batched_tokens = 0;  // tokens of one step; may be below max_num_seqs
  int block_tokens = 0;
  int64_t num_kv_blocks = 0;  // block 0 is not counted
  int depth = 1;              // planned, uncommitted steps: 1 or 2
  // The first one has no window. Empty: all layers are one group.
  std::vector<KvGroup> kv_groups = {};
  std::vector<int> kv_group_of_layer = {};  // [L]; empty: all 0

  // Number of KV groups without a window, at least 1.
  int num_full_kv_groups() const {
    const auto is_full = [](const KvGroup& group) { return group.window == 0; };
    return std::max<int>(
        1, static_cast<int>(std::count_if(kv_groups.begin(), kv_groups.end(), is_full)));
  }
  int num_kv_groups() const { return std::max<int>(1, static_cast<int>(kv_groups.size())); }
  // Entries of a block table.
  int blocks_per_seq() const { return CeilDiv(max_model_len, block_tokens); }
  // Blocks of one sequence, in all groups. Prefill in chunks needs more blocks in groups with a
  // window; all sequences together at most step_blocks() more.
  int64_t BlocksFor(int64_t tokens) const {
    int64_t blocks = BlocksOfGroup({}, tokens);
    for (size_t i = 1; i < kv_groups.size(); ++i) blocks += BlocksOfGroup(kv_groups[i], tokens);
    return blocks;
  }
  int64_t BlocksOfGroup(const KvGroup& group, int64_t tokens) const {
    const int64_t all = CeilDiv(tokens, int64_t{block_tokens});
    return group.window == 0 ? all : std::min(all, WindowBlocks(group.window));
  }
  int64_t step_blocks() const {
    return (num_kv_groups() - num_full_kv_groups()) *
           (int64_t{depth} * max_num_batched_tokens / block_tokens);
  }
  // Blocks that sequences can hold or reserve.
  int64_t usable_blocks() const { return std::max<int64_t>(0, num_kv_blocks - step_blocks()); }
  // The smallest pool that can serve one sequence of `tokens`.
  int64_t LeastBlocks(int64_t tokens) const { return BlocksFor(tokens) + step_blocks(); }
  // Tokens that the pool holds in sequences of max_model_len.
  int64_t kv_tokens() const {
    if (num_kv_groups() == 1) return num_kv_blocks * block_tokens;
    return usable_blocks() * max_model_len / BlocksFor(max_model_len);
  }
  int64_t full_sequences() const { return usable_blocks() / BlocksFor(max_model_len); }
  bool operator==(const Limits&) const = default;

 private:
  // For a sequence that grows by a token: a window touches one block more than it fills, and the
  // next token may open another.
  int64_t WindowBlocks(int64_t window) const {
    return CeilDiv(window - 1, int64_t{block_tokens}) + 2;
  }
};

// Limits that may be given; an absent one is fitted to the memory (memory/capacity.h).
struct GivenLimits {
  std::optional<int> max_num_seqs = std::nullopt;
  std::optional<int> max_model_len = std::nullopt;
  std::optional<int> max_num_batched_tokens = std::nullopt;

  GivenLimits() = default;
  // Gives all of them.
  explicit GivenLimits(const Limits& limits)
      : max_num_seqs(limits.max_num_seqs),
        max_model_len(limits.max_model_len),
        max_num_batched_tokens(limits.max_num_batched_tokens) {}
  // `limits` with the given ones replaced.
  Limits Over(Limits limits) const {
    limits.max_num_seqs = max_num_seqs.value_or(limits.max_num_seqs);
    limits.max_model_len = max_model_len.value_or(limits.max_model_len);
    limits.max_num_batched_tokens = max_num_batched_tokens.value_or(limits.max_num_batched_tokens);
    return limits;
  }
  bool operator==(const GivenLimits&) const = default;
};

}  // namespace bulkhead
