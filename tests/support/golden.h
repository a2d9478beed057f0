// Reference logits and greedy continuations of a small checkpoint, from another implementation (see
// tests/data/models/README.md for the format).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bulkhead {

struct Golden {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> greedy_ids;  // [prompts][32], end-of-sequence ids ignored
  std::vector<std::vector<float>> logits;        // [prompts][tokens x vocab_size]
  int64_t vocab_size = 0;
};

// Aborts on an unexpected file: it is part of the tests.
Golden ReadGolden(const std::string& dir);

// The prompts' tokens, concatenated and repeated cyclically.
std::vector<int32_t> LongPrompt(const Golden& golden, size_t tokens);

// norm(got - want) / norm(want); infinite if sizes differ or any value is NaN.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace bulkhead
