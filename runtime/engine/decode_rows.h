// Padded batch sizes of decode-only steps (one token per sequence): a runner captures one CUDA
// graph per size.
#pragma once

#include <algorithm>

#include "base/check.h"

namespace bulkhead {

// Maximum number of rows of such a step.
inline int MaxDecodeRows(int max_num_seqs, int max_num_batched_tokens) {
  return std::min(max_num_seqs, max_num_batched_tokens);
}

// Rows of a step of `num_seqs`, padding included: 1, 2, 4, 8, a multiple of 8, or `max_rows`.
inline int PaddedDecodeRows(int num_seqs, int max_rows) {
  BH_CHECK(num_seqs >= 1 && num_seqs <= max_rows);
  int rows = 1;
  while (rows < num_seqs) rows = rows < 8 ? 2 * rows : rows + 8;
  return std::min(rows, max_rows);
}

}  // namespace bulkhead
