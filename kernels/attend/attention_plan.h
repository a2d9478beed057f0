// Cuts the attention of one step into units of work, and sizes what that needs. The cut decides who
// computes what and when, never a bit of a result.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attend/op.h"
#include "kernels/backend.h"

namespace bulkhead {

// What attention takes from the workspace, of all kinds of layers. A function of its arguments
// alone.
struct AttentionSizes {
  AttentionSizes() = default;
  AttentionSizes(const StepLimits& limits, const HeadLayout& heads);

  int head_dim = 0;  // at most, as the rest
  int out_dim = 0;
  int tile_tokens = 0;      // tokens of a tile at most
  int min_tile_tokens = 0;  // where threads would lack tiles
  bool in_bf16 = false;
  int64_t scratch_floats = 0;  // for each of kMaxThreads threads
  int64_t max_tiles = 0;
  int64_t num_slots = 0;  // partial results, AttentionSlotFloats each

  int64_t SlotFloats() const;
};

// The query heads of one KV head, or some of them: kAttentionRows at most.
struct HeadPart {
  int kv_head = 0;
  int first = 0;
  int count = 0;
};
int NumHeadParts(const HeadLayout& heads);
HeadPart HeadPartOf(const HeadLayout& heads, int part);  // in [0, NumHeadParts)

// Writes the tiles of a step to `tiles`, each a unit whose head fields are left open, and returns
// how many. With several threads, a tile that costs more than its fair share becomes several units
// of fewer chunks while slots last. Sequences in order, a sequence's longest tile first.
int64_t PlanAttention(const StepIndex& index, const HeadLayout& heads,
                      const AttentionOptions& options, int num_threads, const AttentionSizes& sizes,
                      absl::Span<AttentionUnit> tiles);

}  // namespace bulkhead
