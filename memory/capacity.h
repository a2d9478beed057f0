// capacity: from what each rank has to what the group can hold. Pure arithmetic: every rank
// computes it from the same budgets and comes to the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

struct RankBudget {
  int rank = 0;
  std::string host;
  int64_t available_bytes = 0;  // this rank's fair share of what its host has free
  int64_t arenas_bytes = 0;     // every arena but KV
  int64_t kv_block_bytes = 0;   // 0 on a rank without heads: it sets no limit

  // One line of text, for the exchange between ranks.
  std::string Serialize() const;
  static absl::StatusOr<RankBudget> Parse(absl::string_view text);
};

struct PoolRequest {
  int max_num_seqs = 0;
  int max_model_len = 0;
  int block_tokens = 0;
  std::optional<int64_t> kv_cache_bytes = std::nullopt;  // per rank, as asked for
};

struct PoolSize {
  int64_t num_blocks = 0;
  int binding_rank = 0;
  int64_t full_sequences = 0;  // sequences of max_model_len that the pool holds
};

// Blocks = the least over ranks of what each can hold. With kv_cache_bytes: that many bytes. Else
// enough for max_num_seqs full sequences, at most half of what is left beside the other arenas, but
// at least one full sequence where that fits. RESOURCE_EXHAUSTED (exit code 4) names the rank, its
// host, the term, the bytes short and a length that would fit.
absl::StatusOr<PoolSize> SizeKvPool(absl::Span<const RankBudget> budgets,
                                    const PoolRequest& request);

}  // namespace bulkhead
