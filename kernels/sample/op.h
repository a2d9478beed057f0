// Sampling on the device, so that whole rows of logits need not be copied to the host.
//
// A list of candidates is kCandidates logits (f32), then kCandidates ids (int32), of one row: the
// likeliest first, ties by the lower id, NaN before everything; an id of -1 ends a shorter one.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "base/token_sampling.h"

namespace bulkhead {

inline constexpr int64_t kCandidateCols = int64_t{2} * kCandidates;  // per list, as f32

// Lists that a rank makes of a row when the widest rank has `widest_cols` columns: one per slice,
// so that several blocks share a long row.
inline constexpr int64_t kSliceCols = 16384;
constexpr int64_t ListsOfRank(int64_t widest_cols) {
  return widest_cols > kSliceCols ? CeilDiv(widest_cols, kSliceCols) : 1;
}

// SampleRows' scratch per row, in f32: for each chunk of kChunkIds ids a sum in double and a
// maximum, and the cut of top-p.
constexpr int64_t RowScratchCols(int64_t vocab_size) {
  const int64_t chunks = CeilDiv(vocab_size, int64_t{kChunkIds});
  return 2 * chunks + 4 + (chunks + chunks % 2);
}

}  // namespace bulkhead
