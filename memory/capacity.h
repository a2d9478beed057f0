// capacity: from each rank's device memory and the model's needs to the limits of the group, or to
// the rank and memory category that do not fit. Pure arithmetic: every rank computes the same
// result from the same budgets, and `plan` computes it without any rank.
//
// Available to a rank is total - others - reserve (and at most u x total under
// KvRule::kUtilization). Its arenas are claimed from it in the order of MemoryCategory; the first
// claim larger than the remaining bytes does not fit. The last claim is KV: at least one sequence
// of max_model_len.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "memory/ledger.h"
#include "memory/limits.h"

namespace bulkhead {

// The memory of one rank's device.
struct DeviceBudget {
  int rank = 0;
  std::string host = "";         // no spaces
  std::string device = "";       // "cpu"; no spaces
  std::string cores = "-";       // the rank's allowed cores, "0-3,8"; "-": unknown
  std::string numa_nodes = "-";  // NUMA nodes of those cores, "0,1"; "-": unknown
  int64_t total_bytes = 0;       // physical memory, or the given cap
  int64_t others_bytes = 0;      // used by other processes; 0 under a given cap
  int64_t driver_bytes = 0;      // GPU only: used by its libraries for this process; 0 under a
                                 // given cap
  int64_t reserve_bytes = 0;     // never claimed
  int64_t transient_bytes = 0;   // host memory of the readers, only while loading weights
  bool probed = false;           // true: measured; false: a given cap

  int64_t free_bytes() const { return total_bytes - others_bytes - driver_bytes; }
  bool on_cpu() const { return device == "cpu"; }
  // The host's memory was measured, and use outside the arenas is within the reserve.
  bool host_in_reserve() const { return probed && on_cpu(); }
};

// One rank's needs under given limits.
struct RankNeeds {
  CategoryBytes category_bytes{};   // the kv entry is 0
  int64_t kv_block_bytes = 0;       // 0 on a rank without KV heads: it sets no limit
  int64_t kv_layers_bytes = 0;      // bytes of a block's tokens in the layers of all KV groups
  int64_t stored_weight_bytes = 0;  // part of the weights category: the tensors without rounding
  CategoryBytes draft_bytes{};      // parts of the draft model category; kv: of one block
  // GPU ranks only: host memory that is pinned, shared between the host's ranks, or used by weights
  // until they are complete.
  int64_t host_bytes = 0;
  int64_t sum_host_bytes = 0;  // the part of host_bytes for sums
  int64_t open_weight_bytes = 0;
};
using NeedsOf = std::function<RankNeeds(int rank, const Limits& limits)>;

// How each rank sizes its KV pool; the group uses the smallest.
struct KvRule {
  enum class Kind {
    kNone,         // all remaining memory, capped at max_num_seqs full sequences if requested; on a
                   // probed host at most half of it, but never less than one full sequence
    kUtilization,  // all of this process's arenas, KV included, up to `fraction` of total
    kShareOfFree,  // `fraction` of the memory left after the weights
    kBlocks,       // `count` blocks
    kBytes,        // at most `count` bytes: converted to blocks on the rank with the largest block
  };
  Kind kind = Kind::kNone;
  double fraction = 0;
  int64_t count = 0;

  bool operator==(const KvRule&) const = default;
};

struct CapacityRequest {
  GivenLimits given;  // never changed; the others are fitted
  Limits start;       // where fitting starts, and the block size
  KvRule rule;
  bool cap_at_max_num_seqs = true;  // KvRule::kNone takes no more than they can use
  // Sets the KV groups for a max_model_len; absent: all layers are one group.
  std::function<void(Limits&)> group_layers = nullptr;
};

struct Shortage {
  int rank = 0;
  MemoryCategory category = MemoryCategory::kWeights;
  int64_t bytes = 0;         // missing bytes
  int64_t needed_bytes = 0;  // by the category
  int64_t left_bytes = 0;    // available to the category
};

struct RankCapacity {
  DeviceBudget budget;
  CategoryBytes arena_bytes{};  // with the actual KV; 0 if nothing fits
  CategoryBytes draft_bytes{};  // as in RankNeeds
  int64_t kv_block_bytes = 0;
  int64_t kv_layers_bytes = 0;      // as in RankNeeds
  int64_t stored_weight_bytes = 0;  // as in RankNeeds
  int64_t host_bytes = 0;           // as in RankNeeds
  int64_t loading_bytes = 0;        // host memory until weights are loaded: theirs and the readers'
  int64_t own_blocks = 0;  // blocks this rank alone could hold under the rule; 0 without KV heads
  // The smallest total that fits with these limits, others and reserve, if every rank had the same;
  // 0: no amount is enough, as the rule grants less than one sequence.
  int64_t required_bytes = 0;
  int64_t free_bytes = 0;      // left after arenas, others and reserve
  int64_t stranded_bytes = 0;  // unused KV memory because another rank has less
  std::string rule_text;       // the rule as arithmetic

  // KV bytes per token of a sequence longer than the windows.
  int64_t KvBytesPerToken(const Limits& limits) const {
    return kv_block_bytes * limits.num_full_kv_groups() / limits.block_tokens;
  }
};

struct Capacity {
  bool fits = false;
  Limits limits;               // no blocks if it does not fit
  int64_t full_sequences = 0;  // sequences of max_model_len that fit in the pool
  int binding_rank = 0;
  MemoryCategory limiting_category = MemoryCategory::kKv;
  std::vector<RankCapacity> ranks;
  std::optional<Shortage> shortage;  // the largest shortage, if it does not fit
};

// Jointly fits the limits that are not given, reducing in this order until it fits: max_model_len
// is halved down to 4096; then the chunk to 512, rows to 16, length to 4 blocks, the chunk to 64,
// rows to 1.
Capacity PlanCapacity(absl::Span<const DeviceBudget> budgets, const CapacityRequest& request,
                      const NeedsOf& needs_of);

}  // namespace bulkhead
