// What each generated token costs rank 0 beside planning: measured on the real sampler and the real
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

// Of `vocab_size` words and letters, at least 100: where there is no model.
std::unique_ptr<Tokenizer> MadeUpTokenizer(int vocab_size);

}  // namespace bulkhead
