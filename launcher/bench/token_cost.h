// Rank 0's cost of each generated token besides planning: measured on the real sampler and the real
// text stream.
#pragma once

#include <memory>

#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

// Processor time of one token, in seconds; medians.
struct TokenCost {
  int vocab_size = 0;
  double greedy_s = 0;   // sampling from one row of logits at temperature 0
  double sampled_s = 0;  // at temperature 1, without filters
  double text_s = 0;     // detokenising
};

// Some 50 ms of work for a vocabulary of 32,000.
TokenCost MeasureTokenCost(const Tokenizer& tokenizer);

// A tokenizer of `vocab_size` (at least 100) words and letters, for use without a model.
std::unique_ptr<Tokenizer> MadeUpTokenizer(int vocab_size);

}  // namespace bulkhead
