#include "kernels/attend/cuda_list.h"

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"

namespace bulkhead {

int64_t AttendList::Fill(const StepIndex& host_index, const CudaAttentionSplits& splits,
                         int32_t* list) {
  num_items_ = 0;
  num_tokens_ = host_index.num_tokens;
  max_whole_tokens_ = 0;
  combined_.clear();
  rounds_.clear();
  work_before_ = {0};
  // body(sequence, its first token in the step, its tokens there, context tokens, tokens per split)
  const auto for_sequences = [&](bool of_one_token, const auto& body) {
    for (int seq = 0; seq < host_index.num_seqs; ++seq) {
      const int begin = host_index.seq_begin[seq];
      const int new_tokens = host_index.seq_begin[seq + 1] - begin;
      if (new_tokens == 0 || (new_tokens == 1) != of_one_token) continue;
      const int tokens = host_index.position[begin + new_tokens - 1] + 1;
      body(seq, begin, new_tokens, tokens,
           cuda::SplitTokens(new_tokens, tokens, splits.per_context, splits.max_part_rows));
    }
  };
  for_sequences(true, [&](int seq, int begin, int, int tokens, int split_tokens) {
    AddSplits(seq, tokens, split_tokens, seq * splits.per_context - begin, 1);
  });
  PutItems(list);
  const int num_decode_items = num_items_;
  has_decodes_ = num_decode_items > 0;
  int64_t rows = 0;  // in the last round
  for_sequences(false, [&](int seq, int begin, int new_tokens, int tokens, int split_tokens) {
    if (split_tokens >= tokens) {
      max_whole_tokens_ = std::max(max_whole_tokens_, new_tokens);
      return;
    }
    const auto count = static_cast<int>(CeilDiv(tokens, split_tokens));
    const bool is_full = !rounds_.empty() && rows + int64_t{new_tokens} * count > splits.part_rows;
    if (rounds_.empty() || is_full) {
      PutItems(list);
      rows = 0;
      rounds_.push_back(
          {.first_item = num_items_, .first_combined = static_cast<int>(combined_.size())});
    }
    Round& round = rounds_.back();
    round.num_items += count;
    round.num_combined += new_tokens;
    round.max_tokens = std::max(round.max_tokens, new_tokens);
    AddSplits(seq, tokens, split_tokens, static_cast<int>(rows) - begin, new_tokens);
    for (int i = 0; i < new_tokens; ++i) {
      combined_.push_back({begin + i, static_cast<int>(rows) + i, new_tokens, split_tokens});
    }
    rows += int64_t{new_tokens} * count;
  });
  PutItems(list);
  const auto bytes = static_cast<int64_t>(combined_.size() * sizeof(combined_[0]));
  auto* const to = const_cast<cuda::CombineItem*>(CombinedOf(list));
  if (bytes > 0) std::memcpy(to, combined_.data(), static_cast<size_t>(bytes));
  auto* const work = reinterpret_cast<int32_t*>(to + combined_.size());
  std::copy_n(work_before_.begin(), num_decode_items + 1, work);
  list[0] = num_decode_items;
  list[1] = static_cast<int32_t>(work - list);
  return (work + num_decode_items + 1 - list) * int64_t{4};
}

void AttendList::AddSplits(int seq, int tokens, int split_tokens, int row0, int row_step) {
  const int whole = tokens / split_tokens;
  if (whole > 0) runs_.push_back({{seq, 0, split_tokens, row0}, whole, split_tokens, row_step});
  if (tokens % split_tokens == 0) return;
  runs_.push_back(
      {{seq, whole, split_tokens, row0 + whole * row_step}, 1, tokens % split_tokens, row_step});
}

void AttendList::PutItems(int32_t* list) {
  std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.first.seq < b.first.seq;
  });
  auto* const items = const_cast<cuda::AttendItem*>(ItemsOf(list));
  for (const Run& run : runs_) {
    for (int i = 0; i < run.count; ++i) {
      cuda::AttendItem& item = items[num_items_++];
      item = run.first;
      item.split += i;
      item.row0 += i * run.row_step;
      work_before_.push_back(work_before_.back() + cuda::WorkOfSplit(run.tokens));
    }
  }
  runs_.clear();
}

}  // namespace bulkhead
