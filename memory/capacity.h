// capacity: from what each rank's device has and what the model needs of it to the limits of the
// group, or to the rank and term that do not fit. Pure arithmetic: every rank computes it from the
// same budgets and comes to the same answer, and `plan` computes it with no rank at all.
//
// A rank's room is total - others - reserve (and at most u x total under KvRule::kUtilization). Its
// arenas are claimed from the room in the order of MemoryCategory; the first claim that is larger
// than what is left is what does not fit. The last claim is KV: at least one sequence of
// max_model_len.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/ledger.h"

namespace bulkhead {

// What one rank's device offers.
struct DeviceBudget {
  int rank = 0;
  std::string host = "";         // no spaces
  std::string device = "";       // "cpu"; no spaces
  std::string cores = "-";       // that the rank may run on, "0-3,8"; "-": not known
  std::string numa_nodes = "-";  // that hold those cores, "0,1"; "-": not known
  int64_t total_bytes = 0;       // what there is, or the cap that was given
  int64_t others_bytes = 0;      // used by others already; 0 under a given cap
  int64_t driver_bytes = 0;      // a GPU's: taken by its libraries for us; 0 under a given cap
  int64_t reserve_bytes = 0;     // not to be claimed
  int64_t transient_bytes = 0;  // used while weights load, returned afterwards; 0 under a given cap
  bool probed = false;          // measured; false: a cap that was given

  int64_t free_bytes() const { return total_bytes - others_bytes - driver_bytes; }
  bool on_cpu() const { return device == "cpu"; }
  // One line of text, for the exchange between ranks.
  std::string Serialize() const;
  static absl::StatusOr<DeviceBudget> Parse(absl::string_view text);
};

struct GroupLimits {
  int max_num_seqs = 0;
  int max_model_len = 0;
  int max_num_batched_tokens = 0;

  bool operator==(const GroupLimits&) const = default;
};

// What one rank needs under some limits.
struct RankNeeds {
  std::array<int64_t, kNumMemoryCategories> category_bytes{};  // kv: 0
  int64_t kv_block_bytes = 0;       // 0 on a rank without heads: it sets no limit
  int64_t stored_weight_bytes = 0;  // of the weights term: the tensors alone, without rounding
};
using NeedsOf = std::function<RankNeeds(int rank, const GroupLimits& limits)>;

// How the size of the KV pool is chosen on each rank; the group's pool is the least of all.
struct KvRule {
  enum class Kind {
    kNone,         // all that is left, up to max_num_seqs full sequences where so asked for; on a
                   // probed host at most half of it, but never less than one full sequence
    kUtilization,  // own bytes, KV and all other arenas, up to `fraction` of total
    kShareOfFree,  // `fraction` of what is free after the weights
    kBlocks,       // `count` blocks
    kBytes,        // `count` bytes at most: as many blocks as they are on the rank with the largest
  };
  Kind kind = Kind::kNone;
  double fraction = 0;
  int64_t count = 0;
};

struct CapacityRequest {
  // Given ones are never changed; the others are fitted.
  std::optional<int> max_num_seqs, max_model_len, max_num_batched_tokens;
  // Where fitting starts.
  GroupLimits start;
  int block_tokens = 0;
  KvRule rule;
  bool cap_at_max_num_seqs = true;  // KvRule::kNone takes no more than they can use
};

struct Shortage {
  int rank = 0;
  MemoryCategory term = MemoryCategory::kWeights;
  int64_t bytes = 0;         // that are missing
  int64_t needed_bytes = 0;  // by the term
  int64_t left_bytes = 0;    // for it
};

struct RankCapacity {
  DeviceBudget budget;
  std::array<int64_t, kNumMemoryCategories>
      arena_bytes{};  // with KV as it is taken; 0 where nothing fits
  int64_t kv_block_bytes = 0;
  int64_t stored_weight_bytes = 0;  // as in RankNeeds
  int64_t own_blocks = 0;  // that this rank alone could hold under the rule; 0 without heads
  // The least total that starts with these limits, others and reserve, where every rank has its
  // own; 0: no memory is enough, for the rule gives less than a sequence.
  int64_t required_bytes = 0;
  int64_t free_bytes = 0;      // after arenas, others and reserve
  int64_t stranded_bytes = 0;  // KV that it could hold, were it not for the binding rank
  std::string rule_text;       // the rule as arithmetic
};

struct Capacity {
  bool fits = false;
  GroupLimits limits;
  int block_tokens = 0;
  int64_t num_kv_blocks = 0;
  int64_t full_sequences = 0;  // of max_model_len, that the pool holds
  int binding_rank = 0;
  MemoryCategory binding_term = MemoryCategory::kKv;
  std::vector<RankCapacity> ranks;
  std::optional<Shortage> shortage;  // the largest, when it does not fit
};

// Fits the limits that are not given, jointly: as long as it does not fit, length is halved down to
// 4096; then the chunk to 512, rows to 16, length to 4 blocks, the chunk to 64, rows to 1.
Capacity PlanCapacity(absl::Span<const DeviceBudget> budgets, const CapacityRequest& request,
                      const NeedsOf& needs_of);

}  // namespace bulkhead
