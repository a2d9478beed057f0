// The KV blocks of sequences: group 0 has blocks for all tokens, the other groups for tokens inside
// their windows.
#include <algorithm>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/engine/scheduler.h"

namespace bulkhead {

int64_t Scheduler::TableBlocks(int64_t tokens) const {
  return CeilDiv(tokens, limits_.block_tokens);
}

// Blocks held by sequences or reserved for them.
int64_t Scheduler::NumBlocksUsed() const {
  return pool_.num_blocks() - pool_.num_available() - limits_.step_blocks();
}

int64_t Scheduler::TokensToAdmit(const Sequence& sequence) const {
  return limits_.admission == Admission::kReserve ? sequence.max_total_tokens
                                                  : sequence.known_tokens();
}

// Blocks that it lacks to hold `tokens`.
Scheduler::BlocksToGrow Scheduler::Lacks(const Sequence& sequence, int64_t tokens) const {
  const int64_t table = TableBlocks(tokens);
  return {std::max<int64_t>(0, table - static_cast<int64_t>(sequence.blocks.size())),
          std::max<int64_t>(0, limits_.BlocksFor(tokens) - table - sequence.reserved_blocks)};
}

bool Scheduler::Grow(Sequence& sequence, int64_t tokens) {
  const BlocksToGrow lacks = Lacks(sequence, tokens);
  if (lacks.table + lacks.reserved > pool_.num_available()) return false;
  BH_CHECK(pool_.Grow(sequence.blocks, lacks.table) && pool_.Reserve(lacks.reserved));
  sequence.reserved_blocks += lacks.reserved;
  return true;
}

// At admission: takes the prefix's blocks before any others, which could evict them.
void Scheduler::TakeBlocks(const CachedPrefix& prefix, Sequence& sequence) {
  pool_.TakePrefix(prefix, sequence.blocks);
  const int64_t tokens = TokensToAdmit(sequence);
  sequence.reserved_blocks = limits_.BlocksFor(tokens) - TableBlocks(tokens);
  BH_CHECK(pool_.Reserve(sequence.reserved_blocks));
  sequence.windows.resize(limits_.num_kv_groups() - 1);
  for (size_t i = 0; i < prefix.windows.size(); ++i) {
    WindowBlocks& window = sequence.windows[i];
    window.blocks.assign(prefix.windows[i].begin(), prefix.windows[i].end());
    window.first = static_cast<int64_t>(prefix.blocks.size() - window.blocks.size());
    for (const BlockId block : window.blocks) pool_.TakeCached(block);
  }
  BH_CHECK(Grow(sequence, tokens));
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  for (WindowBlocks& window : sequence.windows) {
    for (; !window.blocks.empty(); window.blocks.pop_back()) {
      pool_.ReturnReserved(window.blocks.back());
    }
  }
  sequence.windows.clear();
  pool_.Unreserve(std::exchange(sequence.reserved_blocks, 0));
  pool_.Return(sequence.blocks);
}

// The first block that a token at position `end` or a later one sees.
int64_t Scheduler::FirstInWindow(size_t window, int64_t end) const {
  const int size = limits_.kv_groups[window + 1].window;
  return size == 0 ? 0 : std::max<int64_t>(0, end - size + 1) / limits_.block_tokens;
}

// After the commit of a step that computed the positions below `end`. Steps in flight may still
// read released blocks: their next writer is in a later step.
void Scheduler::LeaveWindows(Sequence& sequence, int64_t end) {
  for (size_t i = 0; i < sequence.windows.size(); ++i) {
    WindowBlocks& window = sequence.windows[i];
    for (const int64_t first = FirstInWindow(i, end); window.first < first; ++window.first) {
      pool_.ReturnReserved(window.blocks.front());
      window.blocks.pop_front();
    }
  }
}

// Looks up the cached blocks it can start from. The last token is always computed, for its logits,
// and so is every token of a prompt whose logits are requested.
void Scheduler::UpdatePrefix(Sequence& sequence) const {
  if (sequence.prompt_logits != nullptr) return;
  pool_.UpdatePrefix(sequence.Key(static_cast<int64_t>(sequence.tokens.size()) - 1),
                     sequence.prefix);
}

// The part of sequence.prefix that it can start from: in a model with states, up to the last block
// with a snapshot; in one with windows, up to where all blocks in the windows are cached.
CachedPrefix Scheduler::UsablePrefix(const Sequence& sequence) const {
  const SnapshotPool* const snapshots = pool_.snapshots();
  const std::vector<BlockId>& blocks = sequence.prefix.blocks;
  const SequenceKey key = sequence.Key(static_cast<int64_t>(sequence.tokens.size()));
  std::vector<std::vector<BlockId>> windows(limits_.num_kv_groups() - 1);
  auto count = static_cast<int64_t>(blocks.size());
  // A last block that the MTP layer has not computed (an earlier sequence ended in it) is
  // recomputed.
  if (limits_.drafts.mtp && count > 0 && !pool_.cache()->drafted(blocks[count - 1])) --count;
  for (size_t i = 0; count > 0 && i <= windows.size();) {
    if (i == windows.size()) {
      if (snapshots == nullptr || snapshots->Of(blocks[count - 1]) >= 0) break;
      --count;
      i = 0;
      continue;
    }
    const int64_t first = FirstInWindow(i, count * limits_.block_tokens);
    windows[i] = pool_.FindWindow(key, sequence.prefix, static_cast<int>(i) + 1, first, count);
    const auto found = static_cast<int64_t>(windows[i].size());
    if (found == count - first) {
      ++i;
    } else {  // all blocks before the missing one
      count -= found + 1;
      i = 0;
    }
  }
  if (count == static_cast<int64_t>(blocks.size()) && windows.empty()) return sequence.prefix;
  CachedPrefix usable = pool_.FirstBlocks(sequence.prefix, count);
  if (count > 0) usable.windows = std::move(windows);
  return usable;
}

// Called after the row's step was committed and its full blocks were cached.
void Scheduler::KeepSnapshot(Sequence& sequence, const PlannedRow& row) {
  SnapshotPool& snapshots = *pool_.snapshots();
  const int64_t blocks = row.end / limits_.block_tokens;
  if (sequence.failed || blocks > sequence.blocks_cached) return snapshots.Return(row.snapshot);
  const BlockId block = sequence.blocks[blocks - 1];
  snapshots.Attach(row.snapshot, block);
  if (row.end <= sequence.prompt_tokens) return;
  if (sequence.kept_block != block) snapshots.Drop(sequence.kept_block);
  sequence.kept_block = block;
}

// After the commit of a step that computed the positions below `end`.
void Scheduler::CacheFullBlocks(Sequence& sequence, int64_t end) {
  if (!pool_.caches()) return;
  const int64_t block_tokens = limits_.block_tokens;
  // A dropped surplus token has been computed, but is not in `tokens`.
  const SequenceKey key = sequence.Key(std::min(end, static_cast<int64_t>(sequence.tokens.size())));
  const int64_t full = static_cast<int64_t>(key.tokens.size()) / block_tokens;
  // If another sequence cached an equal block first, ours may be reused at once although a step in
  // flight may read it: its next writer is in a later step.
  for (; sequence.blocks_cached < full; ++sequence.blocks_cached) {
    const int64_t i = sequence.blocks_cached;
    const BlockKey first = key.Block(i, limits_.block_tokens, i == 0 ? 0 : sequence.blocks[i - 1]);
    const BlockId block = pool_.CacheBlock(first, sequence.blocks[i]);
    if (block != std::exchange(sequence.blocks[i], block)) {
      sequence.blocks_sent = std::min(sequence.blocks_sent, i);
      if (!pool_.cache()->drafted(block)) ForgetDrafted(sequence, i);
    } else if ((i + 1) * block_tokens <= sequence.draft_computed_tokens) {
      pool_.SetDrafted(block);
    }
    for (size_t group = 1; group <= sequence.windows.size(); ++group) {
      WindowBlocks& window = sequence.windows[group - 1];
      BlockId& held = window.blocks[i - window.first];
      const BlockId cached = pool_.CacheBlock(first.InGroup(static_cast<int>(group), block), held);
      if (cached != std::exchange(held, cached)) window.sent = std::min(window.sent, i);
    }
  }
}

// The ranks receive a block table entry with the first step that reads or writes the block; a draft
// model only has group 0.
void Scheduler::AddTableChanges(Sequence& sequence, int64_t end, int num_groups, Step& step) {
  const int64_t needed = TableBlocks(end);
  BH_CHECK(needed <= static_cast<int64_t>(sequence.blocks.size()));
  const bool has_groups = !sequence.windows.empty();
  const auto add = [&](int group, int64_t index, BlockId block) {
    step.plan.add_table_slot(sequence.slot);
    step.plan.add_table_index(static_cast<int32_t>(index));
    step.plan.add_table_block(block);
    if (has_groups) step.plan.add_table_group(group);
  };
  for (; sequence.blocks_sent < needed; ++sequence.blocks_sent) {
    add(0, sequence.blocks_sent, sequence.blocks[sequence.blocks_sent]);
  }
  for (int i = 0; i + 1 < num_groups; ++i) {
    WindowBlocks& window = sequence.windows[i];
    while (window.end() < needed) window.blocks.push_back(pool_.TakeReserved());
    for (window.sent = std::max(window.sent, window.first); window.sent < needed; ++window.sent) {
      add(i + 1, window.sent, window.blocks[window.sent - window.first]);
    }
  }
}

// For CheckInvariants; counts the lists that hold each block.
void Scheduler::CheckBlocks(const Sequence& sequence, std::vector<int>& holders) const {
  const auto check = [&](BlockId block, int64_t i, BlockId parent) {
    const bool cached = pool_.caches() && pool_.cache()->Contains(block);
    BH_CHECK(block > 0 && ++holders[block] <= pool_.NumHolders(block));
    BH_CHECK(cached == (i < sequence.blocks_cached));
    BH_CHECK(!cached || pool_.cache()->parent(block) == parent);
  };
  for (size_t i = 0; i < sequence.blocks.size(); ++i) {
    check(sequence.blocks[i], static_cast<int64_t>(i), i == 0 ? 0 : sequence.blocks[i - 1]);
  }
  for (const WindowBlocks& window : sequence.windows) {
    for (int64_t i = window.first; i < window.end(); ++i) {
      check(window.blocks[i - window.first], i, sequence.blocks[i]);
    }
  }
}

}  // namespace bulkhead
