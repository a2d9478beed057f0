// Logits and greedy continuations that another implementation computed for a small checkpoint
// (tests/data/models/README.md has the format).
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

// Dies on a file that is not as expected: it is part of the tests.
Golden ReadGolden(const std::string& dir);

// norm(got - want) / norm(want); infinite when sizes differ or anything is not a number.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace bulkhead
