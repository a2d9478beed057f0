#include "memory/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/numeric/bits.h"
#include "base/check.h"

namespace bulkhead {
namespace {

uint64_t NumBuckets(int64_t num_blocks) {
  return absl::bit_ceil(static_cast<uint64_t>(num_blocks) + 1);
}

}  // namespace

// Seeded per process: clients cannot predict collisions.
uint64_t PrefixCache::GoodHash(uint64_t before, absl::Span<const int32_t> tokens) {
  return absl::HashOf(before, tokens);
}

PrefixCache::PrefixCache(int64_t num_blocks, int block_tokens, Hash hash,
                         std::shared_ptr<KvEventLog> events)
    : block_tokens_(block_tokens),
      hash_(hash),
      entries_(num_blocks + 1),
      tokens_((num_blocks + 1) * block_tokens),
      buckets_(NumBuckets(num_blocks)),
      events_(std::move(events)) {
  BH_CHECK(num_blocks >= 0 && num_blocks < INT32_MAX && block_tokens > 0);
}

int64_t PrefixCache::HostBytes(int64_t num_blocks, int block_tokens) {
  const auto entry = static_cast<int64_t>(sizeof(Entry) + block_tokens * sizeof(int32_t));
  return (num_blocks + 1) * entry + static_cast<int64_t>(NumBuckets(num_blocks) * sizeof(BlockId));
}

uint64_t PrefixCache::HashOf(const BlockKey& key) const {
  return hash_(absl::HashOf(At(key.parent).hash, key.context, key.group), key.tokens);
}

bool PrefixCache::Holds(BlockId block, uint64_t hash, const BlockKey& key) const {
  const Entry& entry = At(block);
  return entry.hash == hash && entry.parent == key.parent && entry.context == key.context &&
         entry.group == key.group && key.tokens == Tokens(block);
}

BlockId PrefixCache::Find(const BlockKey& key) const {
  BH_CHECK(static_cast<int>(key.tokens.size()) == block_tokens_);
  BH_CHECK(key.parent == 0 || Contains(key.parent));
  const uint64_t hash = HashOf(key);
  BlockId block = buckets_[hash & (buckets_.size() - 1)];
  while (block != 0 && !Holds(block, hash, key)) block = At(block).next_in_bucket;
  return block;
}

void PrefixCache::Insert(const BlockKey& key, BlockId block) {
  BH_CHECK(block > 0 && !Contains(block) && Find(key) == 0);
  Entry& entry = At(block);
  entry = Entry{};
  entry.cached = true;
  entry.references = 1;
  entry.hash = HashOf(key);
  entry.parent = key.parent;
  entry.context = key.context;
  entry.group = static_cast<int8_t>(key.group);
  std::copy(key.tokens.begin(), key.tokens.end(), tokens_.begin() + int64_t{block} * block_tokens_);
  if (key.parent != 0) {
    BH_CHECK(At(key.parent).references > 0);
    ++At(key.parent).num_children;
  }
  BlockId& bucket = buckets_[entry.hash & (buckets_.size() - 1)];
  entry.next_in_bucket = bucket;
  bucket = block;
  // Only a sequence's first block has its context.
  entry.is_public = entry.group == 0 && entry.context == KvDigest{} &&
                    (key.parent == 0 || At(key.parent).is_public);
  if (events_ != nullptr && entry.is_public) {
    events_->Stored(entry.hash, At(entry.parent).hash, key.tokens);
  }
}

void PrefixCache::Acquire(BlockId block) {
  BH_CHECK(Contains(block));
  BH_CHECK(At(block).parent == 0 || At(At(block).parent).references > 0);
  if (At(block).references++ == 0) LeaveIdle(block);
}

bool PrefixCache::Release(BlockId block) {
  Entry& entry = At(block);
  BH_CHECK(entry.cached && entry.references > 0);
  if (--entry.references > 0) return false;
  Entry& ring = At(0);
  entry.older = ring.older;
  entry.newer = 0;
  At(ring.older).newer = block;
  ring.older = block;
  ++num_idle_;
  return true;
}

void PrefixCache::LeaveIdle(BlockId block) {
  const Entry& entry = At(block);
  At(entry.older).newer = entry.newer;
  At(entry.newer).older = entry.older;
  --num_idle_;
}

BlockId PrefixCache::EvictOldest() {
  const BlockId block = At(0).newer;
  BH_CHECK(block != 0);
  Entry& entry = At(block);
  BH_CHECK(entry.references == 0 && entry.num_children == 0);
  LeaveIdle(block);
  if (entry.parent != 0) --At(entry.parent).num_children;
  BlockId* link = &buckets_[entry.hash & (buckets_.size() - 1)];
  while (*link != block) link = &At(*link).next_in_bucket;
  *link = entry.next_in_bucket;
  if (events_ != nullptr && entry.is_public) events_->Removed(entry.hash);
  entry = Entry{};
  return block;
}

KvDigest PrefixCache::Identity(BlockId block) const {
  std::vector<BlockId> blocks;  // from this block to the first
  for (; block != 0; block = At(block).parent) {
    BH_CHECK(Contains(block));
    blocks.push_back(block);
  }
  KvDigest identity = {};
  for (auto at = blocks.rbegin(); at != blocks.rend(); ++at) {
    identity =
        BlockIdentity(identity, {At(*at).parent, Tokens(*at), At(*at).context, At(*at).group});
  }
  return identity;
}

void PrefixCache::CheckInvariants() const {
  std::vector<int32_t> children(entries_.size(), 0);
  std::vector<bool> gone(entries_.size(), false);  // [entry] evicted so far
  int64_t idle = 0;
  for (BlockId block = At(0).newer; block != 0; block = At(block).newer, ++idle) {
    BH_CHECK(At(block).cached && At(block).references == 0 && !gone[block]);
    BH_CHECK(At(At(block).newer).older == block);
    BH_CHECK(At(block).parent == 0 || !gone[At(block).parent]);
    gone[block] = true;
  }
  BH_CHECK(idle == num_idle_);
  int64_t cached = 0;
  for (BlockId block = 1; block < static_cast<BlockId>(entries_.size()); ++block) {
    if (!Contains(block)) continue;
    ++cached;
    const Entry& entry = At(block);
    BH_CHECK(gone[block] == (entry.references == 0));
    if (entry.parent == 0) continue;
    ++children[entry.parent];
    BH_CHECK(Contains(entry.parent) && At(entry.parent).references >= entry.references);
  }
  for (size_t block = 1; block < entries_.size(); ++block) {
    BH_CHECK(entries_[block].num_children == children[block]);
  }
  for (const BlockId first : buckets_) {
    for (BlockId block = first; block != 0; block = At(block).next_in_bucket) --cached;
  }
  BH_CHECK(cached == 0);
}

}  // namespace bulkhead
