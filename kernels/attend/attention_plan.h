// Cuts the attention of one step into units of work, and sizes their memory. The cut decides which
// thread computes what and when, but no bit of the result.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attend/op.h"
#include "kernels/backend.h"

namespace bulkhead {

// Attention's part of the workspace, for all kinds of layers. Depends only on its arguments.
struct AttentionSizes {
  AttentionSizes() = default;
  AttentionSizes(const StepLimits& limits, const HeadLayout& heads);

  int head_dim = 0;  // maximum, as are the others
  int out_dim = 0;
  int tile_tokens = 0;      // maximum tokens of a tile
  int min_tile_tokens = 0;  // if there are too few tiles for the threads
  bool in_bf16 = false;
  int64_t scratch_floats = 0;  // per thread, for kMaxThreads threads
  int64_t max_tiles = 0;
  int64_t num_slots = 0;  // partial results, AttentionSlotFloats each

  int64_t SlotFloats() const;
};

// The query heads of one KV head, or some of them: at most kAttentionRows.
struct HeadPart {
  int kv_head = 0;
  int first = 0;
  int count = 0;
};
int NumHeadParts(const HeadLayout& heads);
HeadPart HeadPartOf(const HeadLayout& heads, int part);  // in [0, NumHeadParts)

// Writes the tiles of a step to `tiles`, each a unit without head fields, and returns their number.
// With several threads, a tile that costs more than its fair share becomes several units of fewer
// chunks while slots last. Sequences in order, a sequence's longest tile first.
int64_t PlanAttention(const StepIndex& index, const HeadLayout& heads,
                      const AttentionOptions& options, int num_threads, const AttentionSizes& sizes,
                      absl::Span<AttentionUnit> tiles);

}  // namespace bulkhead
