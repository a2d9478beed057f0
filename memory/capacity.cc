#include "memory/capacity.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "memory/bytes.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

absl::Status DoesNotFit(const RankBudget& budget, absl::string_view what) {
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat("does not fit: rank ", budget.rank,
                                                                " on ", budget.host, " ", what)),
                      ExitCode::kDoesNotFit);
}

// Blocks that one rank can hold; checked to hold one full sequence.
absl::StatusOr<int64_t> BlocksOf(const RankBudget& budget, const PoolRequest& request) {
  const int64_t blocks_per_seq =
      (int64_t{request.max_model_len} + request.block_tokens - 1) / request.block_tokens;
  const int64_t wanted = blocks_per_seq * request.max_num_seqs;
  const int64_t left = budget.available_bytes - budget.arenas_bytes;
  if (left < 0) {
    return DoesNotFit(budget,
                      absl::StrCat("has ", FormatBytes(budget.available_bytes), " free and needs ",
                                   FormatBytes(budget.arenas_bytes),
                                   " before the KV cache; use more ranks, a smaller model or "
                                   "smaller --max-num-batched-tokens"));
  }
  if (budget.kv_block_bytes == 0) return std::numeric_limits<int64_t>::max();  // no heads, no limit
  const int64_t fitting = left / budget.kv_block_bytes;
  int64_t blocks = std::min(wanted, std::max(fitting / 2, std::min(fitting, blocks_per_seq)));
  if (request.kv_cache_bytes.has_value()) {
    blocks = *request.kv_cache_bytes / budget.kv_block_bytes;
    if (blocks > fitting) {
      return DoesNotFit(
          budget, absl::StrCat("cannot give the KV cache ", FormatBytes(*request.kv_cache_bytes),
                               ": ", FormatBytes(left),
                               " are left beside the other arenas; lower "
                               "--kv-cache-bytes"));
    }
  }
  if (blocks < blocks_per_seq) {
    return DoesNotFit(
        budget, absl::StrCat("can give the KV cache ", FormatBytes(blocks * budget.kv_block_bytes),
                             ", and one sequence of ", FormatCount(request.max_model_len),
                             " tokens needs ", FormatBytes(blocks_per_seq * budget.kv_block_bytes),
                             blocks > 0 ? absl::StrCat("; --max-model-len ",
                                                       blocks * request.block_tokens, " fits")
                                        : "; not even one block fits"));
  }
  return blocks;
}

}  // namespace

std::string RankBudget::Serialize() const {
  return absl::StrCat(rank, " ", available_bytes, " ", arenas_bytes, " ", kv_block_bytes, " ",
                      host);
}

absl::StatusOr<RankBudget> RankBudget::Parse(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 4));
  RankBudget budget;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[0], &budget.rank) ||
      !absl::SimpleAtoi(parts[1], &budget.available_bytes) ||
      !absl::SimpleAtoi(parts[2], &budget.arenas_bytes) ||
      !absl::SimpleAtoi(parts[3], &budget.kv_block_bytes)) {
    return absl::InternalError(absl::StrCat("not a rank's budget: '", text, "'"));
  }
  budget.host = parts[4];
  return budget;
}

absl::StatusOr<PoolSize> SizeKvPool(absl::Span<const RankBudget> budgets,
                                    const PoolRequest& request) {
  PoolSize pool;
  pool.num_blocks = std::numeric_limits<int64_t>::max();
  for (const RankBudget& budget : budgets) {
    BH_ASSIGN_OR_RETURN(const int64_t blocks, BlocksOf(budget, request));
    if (blocks >= pool.num_blocks) continue;
    pool.num_blocks = blocks;
    pool.binding_rank = budget.rank;
  }
  // A block id is an int32, and block 0 is not counted.
  pool.num_blocks = std::min<int64_t>(pool.num_blocks, std::numeric_limits<int32_t>::max() - 1);
  const int64_t blocks_per_seq =
      (int64_t{request.max_model_len} + request.block_tokens - 1) / request.block_tokens;
  pool.full_sequences = pool.num_blocks / blocks_per_seq;
  return pool;
}

}  // namespace bulkhead
