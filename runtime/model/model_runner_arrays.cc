// The block tables and the indices of a step: laid out on the host, and copied to the device.
#include <algorithm>
#include <utility>

#include "runtime/model/model_runner.h"

namespace bulkhead {

using internal::StepPlan;

// For a plan checked by a runner with the same number of slots.
void ModelRunner::ApplyTables(const StepPlan& plan) {
  const int stride = limits_.blocks_per_seq();
  for (int i = 0; i < plan.table_slot_size(); ++i) {
    const int group = plan.table_group_size() > 0 ? plan.table_group(i) : 0;
    if (group >= limits_.num_kv_groups() || plan.table_index(i) >= stride) continue;
    const int row = group * limits_.table_rows() + plan.table_slot(i);
    const int at = plan.table_index(i);
    host_arrays_.block_tables[int64_t{row} * stride + at] = plan.table_block(i);
    TableRange& range = table_ranges_[row];
    if (range.end == 0) {
      changed_tables_.push_back(row);
      range = {at, at + 1};
    }
    range = {std::min(range.begin, at), std::max(range.end, at + 1)};
  }
}

StepIndex ModelRunner::Prepare(const StepPlan& plan) {
  ApplyTables(plan);
  const StepArrays& arrays = host_arrays_;
  int token = 0;
  for (int s = 0; s < plan.slot_size(); ++s) {
    arrays.seq_begin[s] = token;
    arrays.seq_slot[s] = plan.slot(s);
    for (int i = 0; i < plan.num_tokens(s); ++i, ++token) {
      arrays.position[token] = plan.start_position(s) + i;
      arrays.token_seq[token] = s;
      arrays.token_ids[token] = plan.token_ids(token);
    }
  }
  ListLogitRows(plan);
  return Pad(plan.slot_size(), token, plan.padded_tokens() - token);
}

// Padding rows are tokens of block 0, each at its own place: they never race, except in the
// warm-up, where a block may have fewer places.
StepIndex ModelRunner::Pad(int num_seqs, int num_tokens, int rows) {
  const StepArrays& arrays = host_arrays_;
  const int places = std::min(limits_.block_tokens, limits_.max_model_len);
  for (int i = 0; i < rows; ++i, ++num_seqs, ++num_tokens) {
    arrays.seq_begin[num_seqs] = num_tokens;
    arrays.seq_slot[num_seqs] = limits_.max_num_seqs;
    arrays.position[num_tokens] = i % places;
    arrays.token_seq[num_tokens] = num_seqs;
    arrays.token_ids[num_tokens] = 0;
  }
  arrays.seq_begin[num_seqs] = num_tokens;
  return IndexOf(num_seqs, num_tokens);
}

StepIndex ModelRunner::IndexOf(int num_seqs, int num_tokens) const {
  return StepIndex{.num_seqs = num_seqs,
                   .num_tokens = num_tokens,
                   .seq_begin = arrays_.seq_begin,
                   .seq_slot = arrays_.seq_slot,
                   .position = arrays_.position,
                   .token_seq = arrays_.token_seq,
                   .block_tables = arrays_.block_tables,
                   .block_table_stride = limits_.blocks_per_seq(),
                   .padding_slot = limits_.max_num_seqs};
}

// The same index, pointing to the host's arrays.
StepIndex ModelRunner::HostIndexOf(StepIndex index) const {
  index.seq_begin = host_arrays_.seq_begin;
  index.seq_slot = host_arrays_.seq_slot;
  index.position = host_arrays_.position;
  index.token_seq = host_arrays_.token_seq;
  index.block_tables = host_arrays_.block_tables;
  return index;
}

void ModelRunner::SendIndices(const int32_t* host, int32_t* device, int64_t count) {
  if (count == 0 || host == device) return;
  backend_.device().CopyFromHost(host, reinterpret_cast<std::byte*>(device),
                                 count * static_cast<int64_t>(sizeof(int32_t)));
}

// Tables with few changed entries, as is usual when sequences grow, are not copied but sent as a
// list of changes. Returns the number of changes.
int ModelRunner::CopyTables() {
  int changes = 0;
  for (const int row : changed_tables_) {
    const TableRange range = std::exchange(table_ranges_[row], {});
    const int64_t begin = int64_t{row} * limits_.blocks_per_seq() + range.begin;
    const int count = range.end - range.begin;
    const int32_t* const entries = host_arrays_.block_tables + begin;
    if (count > kSmallTableChange || changes + count > MaxTableChanges(limits_)) {
      SendIndices(entries, arrays_.block_tables + begin, count);
      continue;
    }
    for (int i = 0; i < count; ++i, ++changes) {
      host_arrays_.table_changes[2 * changes] = static_cast<int32_t>(begin + i);
      host_arrays_.table_changes[2 * changes + 1] = entries[i];
    }
  }
  changed_tables_.clear();
  return changes;
}

// The copies read the host's arrays until the queue has completed them.
void ModelRunner::CopyArrays(const StepIndex& index) {
  const int changes = CopyTables();
  SendIndices(host_arrays_.seq_begin, arrays_.seq_begin,
              arrays_.table_changes + int64_t{2} * changes - arrays_.seq_begin);
  // Before the last copy: attention reads tables before it waits for the kernel before it.
  backend_.SetEntries(arrays_.table_changes, changes, arrays_.block_tables);
  SendIndices(host_arrays_.position, arrays_.position, index.num_tokens);
  SendIndices(host_arrays_.token_seq, arrays_.token_seq, index.num_tokens);
  SendIndices(host_arrays_.token_ids, arrays_.token_ids, index.num_tokens);
  SendIndices(host_arrays_.logit_rows, arrays_.logit_rows, static_cast<int64_t>(logit_seq_.size()));
  backend_.BeginStep(HostIndexOf(index));
}

}  // namespace bulkhead
