#include "kernels/attend/cuda_list.h"

#include <algorithm>
#include <vector>

namespace bulkhead {

int64_t AttendList::Fill(const StepIndex& host_index, int32_t* list) {
  // Splits of one sequence that are equally long.
  struct Run {
    int seq = 0;
    int first = 0;
    int count = 0;
    int tokens = 0;  // of each
  };
  std::vector<Run> runs;
  runs.reserve(2 * host_index.num_seqs);
  for (int seq = 0; seq < host_index.num_seqs; ++seq) {
    const int begin = host_index.seq_begin[seq];
    if (host_index.seq_begin[seq + 1] - begin != 1) continue;
    const int tokens = host_index.position[begin] + 1;
    const int split_tokens = cuda::SplitTokens(tokens);
    const int whole = tokens / split_tokens;
    if (whole > 0) runs.push_back({seq, 0, whole, split_tokens});
    if (tokens % split_tokens != 0) runs.push_back({seq, whole, 1, tokens % split_tokens});
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.seq < b.seq;
  });
  auto* end = reinterpret_cast<cuda::AttendItem*>(list) + 1;
  for (const Run& run : runs) {
    for (int i = 0; i < run.count; ++i) *end++ = {run.seq, run.first + i};
  }
  list[0] = static_cast<int32_t>(end - ItemsOf(list));
  return reinterpret_cast<std::byte*>(end) - reinterpret_cast<std::byte*>(list);
}

}  // namespace bulkhead
