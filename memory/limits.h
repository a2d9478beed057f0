// The limits of a group: what a step, a sequence and the KV pool hold at most.
#pragma once

#include <cstdint>
#include <optional>

namespace bulkhead {

struct Limits {
  int max_num_seqs = 0;            // sequences with a slot
  int max_model_len = 0;           // prompt and generated tokens of one sequence
  int max_num_batched_tokens = 0;  // tokens of one step; may be below max_num_seqs
  int block_tokens = 0;
  int64_t num_kv_blocks = 0;  // block 0 is not counted

  int blocks_per_seq() const { return (max_model_len + block_tokens - 1) / block_tokens; }
  int64_t kv_tokens() const { return num_kv_blocks * block_tokens; }
  bool operator==(const Limits&) const = default;
};

// Those that may be given; an absent one is fitted to the memory (memory/capacity.h).
struct GivenLimits {
  std::optional<int> max_num_seqs = std::nullopt;
  std::optional<int> max_model_len = std::nullopt;
  std::optional<int> max_num_batched_tokens = std::nullopt;

  GivenLimits() = default;
  // All of them.
  explicit GivenLimits(const Limits& limits)
      : max_num_seqs(limits.max_num_seqs),
        max_model_len(limits.max_model_len),
        max_num_batched_tokens(limits.max_num_batched_tokens) {}
  // `limits` with these in place of its own.
  Limits Over(Limits limits) const {
    limits.max_num_seqs = max_num_seqs.value_or(limits.max_num_seqs);
    limits.max_model_len = max_model_len.value_or(limits.max_model_len);
    limits.max_num_batched_tokens = max_num_batched_tokens.value_or(limits.max_num_batched_tokens);
    return limits;
  }
  bool operator==(const GivenLimits&) const = default;
};

}  // namespace bulkhead
