#include "memory/kv_event_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace bulkhead {

KvEventLog::KvEventLog(int block_tokens)
    : block_tokens_(block_tokens), entries_(kMaxEvents), tokens_(kMaxEvents * block_tokens) {
  BH_CHECK(block_tokens > 0);
}

int64_t KvEventLog::HostBytes(int block_tokens) {
  return kMaxEvents * static_cast<int64_t>(sizeof(Entry) + block_tokens * sizeof(int32_t));
}

void KvEventLog::Add(const Entry& entry, absl::Span<const int32_t> tokens) {
  if (num_events_ - batch_begin_ == kMaxBatchEvents) {
    ++next_batch_;
    batch_begin_ = num_events_;
  }
  const size_t slot = SlotOf(num_events_++);
  entries_[slot] = entry;
  entries_[slot].batch = next_batch_;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + slot * block_tokens_);
}

void KvEventLog::Stored(uint64_t hash, uint64_t parent_hash, absl::Span<const int32_t> tokens) {
  BH_CHECK(static_cast<int>(tokens.size()) == block_tokens_);
  const absl::MutexLock lock(&mutex_);
  Add({hash, parent_hash, 0, true}, tokens);
}

void KvEventLog::Removed(uint64_t hash) {
  const absl::MutexLock lock(&mutex_);
  Add({hash, 0, 0, false}, {});
}

void KvEventLog::EndBatch() {
  {
    const absl::MutexLock lock(&mutex_);
    if (num_events_ == batch_begin_) return;
    ++next_batch_;
    batch_begin_ = num_events_;
  }
  WakeReaders();
}

void KvEventLog::Close() {
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  WakeReaders();
}

void KvEventLog::WakeReaders() {
  std::vector<std::function<void()>> wakes;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [reader, wake] : readers_) wakes.push_back(wake);
  }
  for (const auto& wake : wakes) wake();
}

std::optional<int> KvEventLog::Subscribe(std::function<void()> wake) {
  const absl::MutexLock lock(&mutex_);
  if (readers_.size() >= kMaxReaders) return std::nullopt;
  readers_.emplace(next_reader_, std::move(wake));
  return next_reader_++;
}

void KvEventLog::Unsubscribe(int reader) {
  const absl::MutexLock lock(&mutex_);
  readers_.erase(reader);
}

std::optional<KvEventBatch> KvEventLog::Read(uint64_t next) const {
  const absl::MutexLock lock(&mutex_);
  if (next == next_batch_) return std::nullopt;
  const uint64_t kept_from = num_events_ - std::min<uint64_t>(num_events_, kMaxEvents);
  // The oldest batch that still has all its events.
  uint64_t first = kept_from;
  while (kept_from > 0 && first < batch_begin_ &&
         entries_[SlotOf(first)].batch == entries_[SlotOf(kept_from)].batch) {
    ++first;
  }
  const uint64_t oldest = first < batch_begin_ ? entries_[SlotOf(first)].batch : next_batch_;
  if (next > next_batch_ || next < oldest) return KvEventBatch{oldest - 1, true, first};
  while (entries_[SlotOf(first)].batch != next) ++first;
  KvEventBatch batch{next, false, first};
  for (uint64_t i = first; i < batch_begin_ && entries_[SlotOf(i)].batch == next; ++i) {
    const size_t slot = SlotOf(i);
    const Entry& entry = entries_[slot];
    KvEvent& event = batch.events.emplace_back(KvEvent{entry.hash, entry.stored});
    if (!entry.stored) continue;
    event.parent_hash = entry.parent_hash;
    const auto tokens = tokens_.begin() + slot * block_tokens_;
    event.tokens.assign(tokens, tokens + block_tokens_);
  }
  return batch;
}

uint64_t KvEventLog::next_batch() const {
  const absl::MutexLock lock(&mutex_);
  return next_batch_;
}

bool KvEventLog::closed() const {
  const absl::MutexLock lock(&mutex_);
  return closed_;
}

}  // namespace bulkhead
