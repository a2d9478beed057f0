// Admission of one waiting sequence: whether it starts now, and with which blocks.
#include <algorithm>

#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

constexpr int64_t kLeastSharedTokens = 64;  // minimum to wait for another sequence's step

}  // namespace

// Whether steps in flight, or this one, compute at least half of the prompt's uncached tokens for a
// sequence with the same prefix: after their commit this one starts from the cache. Thus the prompt
// of `n` choices, or of many requests with the same prefix, is computed once.
bool Scheduler::IsBeingCached(Sequence& sequence) const {
  if (!pool_.caches() || pool_.snapshots() != nullptr || sequence.prompt_logits != nullptr ||
      !sequence.spans.empty()) {
    return false;
  }
  UpdatePrefix(sequence);
  const int64_t cached = std::ssize(sequence.prefix.blocks) * limits_.block_tokens;
  const int64_t half = std::max(kLeastSharedTokens, (std::ssize(sequence.tokens) - cached) / 2);
  const int64_t blocks = TableBlocks(cached + half);
  const int64_t end = blocks * limits_.block_tokens;
  if (end >= std::ssize(sequence.tokens)) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    return other->state == SequenceState::kRunning && !other->failed &&
           other->blocks_cached < blocks && other->planned_tokens >= end &&
           std::ssize(other->tokens) >= end && other->spans.empty() &&
           other->cache_context == sequence.cache_context &&
           std::equal(sequence.tokens.begin(), sequence.tokens.begin() + end,
                      other->tokens.begin());
  });
}

// `blocks_kept`: free blocks not available to this sequence.
bool Scheduler::TryAdmit(Sequence& sequence, int64_t blocks_kept) {
  UpdatePrefix(sequence);
  const auto known = static_cast<int64_t>(sequence.prefix.blocks.size());
  const CachedPrefix prefix = UsablePrefix(sequence);
  const auto found = static_cast<int64_t>(prefix.blocks.size());
  const int64_t needed = limits_.BlocksFor(TokensToAdmit(sequence)) - found;
  int64_t margin = blocks_kept + prefix.num_idle;
  if (limits_.admission == Admission::kOptimistic && !running_.empty()) {
    margin += std::max<int64_t>(1, limits_.num_kv_blocks / 100);  // headroom for running sequences
                                                                  // to grow
  }
  if (needed + margin > pool_.num_available()) {
    lacked_blocks_ = true;
    return false;
  }
  TakeBlocks(prefix, sequence);
  sequence.prefix = {};
  waiting_.Remove(sequence);
  sequence.blocks_cached = found;
  sequence.planned_tokens = found * limits_.block_tokens;
  if (pool_.snapshots() != nullptr) {
    sequence.branch_tokens =
        known * limits_.block_tokens / limits_.state_tokens * limits_.state_tokens;
    if (found > 0) {
      sequence.restore_snapshot = pool_.snapshots()->Of(sequence.blocks[found - 1]);
      pool_.snapshots()->Pin(sequence.restore_snapshot);
    }
  }
  if (sequence.never_ran) RecordFirstAdmission(sequence);
  sequence.never_ran = false;
  sequence.state = SequenceState::kRunning;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  if (sequence.is_long) ++num_long_running_;
  // Sequences of the same adapter are consecutive: their products are computed together.
  const auto is_alike = [&](const Sequence* other) { return other->adapter == sequence.adapter; };
  const auto last = std::find_if(running_.rbegin(), running_.rend(), is_alike);
  running_.insert(last == running_.rend() ? running_.end() : last.base(), &sequence);
  return true;
}

void Scheduler::RecordFirstAdmission(Sequence& sequence) {
  newly_admitted_.push_back(sequence.id);
  if (sequence.logits != nullptr) {
    sequence.logits->Begin(sequence.tokens, sequence.prompt_tokens, sequence.max_total_tokens);
  }
  sequence.cached_prompt_tokens = std::min(sequence.planned_tokens, sequence.prompt_tokens);
  if (!pool_.caches() || sequence.prompt_logits != nullptr) return;
  prefix_queries_total_ += sequence.tokens.size();
  prefix_hits_total_ += static_cast<uint64_t>(sequence.planned_tokens);
}

void Scheduler::ReserveBlocks(const Sequence& sequence) {
  if (reserved_for_ != sequence.id) {
    reserved_for_ = sequence.id;
    reserved_blocks_ = 0;
  }
  const int64_t needed = limits_.BlocksFor(TokensToAdmit(sequence));
  reserved_blocks_ = std::min(needed, reserved_blocks_ + std::max<int64_t>(1, needed / 32));
}

}  // namespace bulkhead
