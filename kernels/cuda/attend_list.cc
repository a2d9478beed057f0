#include "kernels/cuda/attend_list.h"

#include <algorithm>

namespace bulkhead {

int64_t AttendList::Fill(const StepIndex& host_index, int split_tokens, int32_t* list) {
  const auto position = [&](int seq) { return host_index.position[host_index.seq_begin[seq]]; };
  auto* const items = reinterpret_cast<cuda::AttendItem*>(list) + 1;
  cuda::AttendItem* end = items;
  const auto is_one_token = [&](int seq) {
    return host_index.seq_begin[seq + 1] - host_index.seq_begin[seq] == 1;
  };
  for (int seq = 0; seq < host_index.num_seqs; ++seq) {
    if (!is_one_token(seq)) continue;
    const int whole = (position(seq) + 1) / split_tokens;
    for (int split = 0; split < whole; ++split) *end++ = {seq, split};
  }
  cuda::AttendItem* const rests = end;  // what is left of each sequence behind its whole stretches
  for (int seq = 0; seq < host_index.num_seqs; ++seq) {
    if (!is_one_token(seq)) continue;
    const int tokens = position(seq) + 1;
    if (tokens % split_tokens != 0) *end++ = {seq, tokens / split_tokens};
  }
  std::sort(rests, end, [&](const cuda::AttendItem& a, const cuda::AttendItem& b) {
    const int more = position(a.seq) % split_tokens;
    const int less = position(b.seq) % split_tokens;
    return more != less ? more > less : a.seq < b.seq;
  });
  list[0] = static_cast<int32_t>(end - items);
  return reinterpret_cast<std::byte*>(end) - reinterpret_cast<std::byte*>(list);
}

}  // namespace bulkhead
