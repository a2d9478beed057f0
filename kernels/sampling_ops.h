// SamplingOps: what a backend adds whose device draws tokens itself, so that whole rows of logits
// need not reach the host. As Backend's ops they only enqueue.
//
// A list of candidates is kCandidates logits (f32), then as many ids (int32), of one row: the
// likeliest first, ties by the lower id, NaN before everything; an id of -1 ends a shorter one.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "base/token_sampling.h"
#include "kernels/backend.h"
#include "memory/matrix.h"

namespace bulkhead {

inline constexpr int64_t kCandidateCols = int64_t{2} * kCandidates;  // of a list, as f32

// How many lists a rank makes of a row when the widest has so many columns: one of each slice, so
// that several blocks share a long row.
inline constexpr int64_t kSliceCols = 16384;
constexpr int64_t ListsOfRank(int64_t widest_cols) {
  return widest_cols > kSliceCols ? CeilDiv(widest_cols, kSliceCols) : 1;
}

class SamplingOps {
 public:
  virtual ~SamplingOps() = default;

  // The likeliest of each slice of this rank's columns, of which the first is `first_id`; slices
  // are as many as lists.                  logits [R, v]; lists [R, slices x kCandidateCols]
  virtual void SelectCandidates(ConstMatrixView logits, int64_t first_id, MatrixView lists) = 0;

  // Draws a token of each row from the lists of all ranks, side by side, as the host's sampler
  // (runtime/engine/sampler.h) would from whole rows: the same ids. drawn[i] is an id, kNotFinite
  // or kNothingToSample; last_sampled[slot] the id, or 0.
  //     lists [R, all ranks' slices x kCandidateCols]; draws [R], banned, drawn [R], last_sampled
  //     [slots] in device memory
  virtual void Draw(ConstMatrixView lists, const TokenSampling* draws, const int32_t* banned,
                    int32_t* drawn, int32_t* last_sampled) = 0;

  // token_ids[t] = last_sampled[the slot of t] where it is negative.     token_ids [T]
  virtual void FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                             int32_t* token_ids) = 0;
};

}  // namespace bulkhead
