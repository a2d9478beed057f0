// PrefixCache: maps token prefixes to full blocks of the KV cache, so that a shared prompt prefix
// is not recomputed. Accounting only: no clock, no device, no I/O. Not thread-safe: owned by the
// block pool.
//
// A block's key (memory/block_key.h) is its parent block, its tokens and its context. Hashes only
// find candidates. A hit compares tokens and context, and its parent is the block found before it,
// so hash collisions cost only time.
//
// An unreferenced block stays idle until it is evicted, least recently used first. A holder of a
// block holds all its ancestors and releases the last block first: children of an idle block have
// been idle for longer, so a block is never evicted before its children. Blocks of groups with a
// window are children without children: a sequence releases them while it goes on.
//
// All memory is allocated by the constructor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "memory/block_key.h"
#include "memory/kv_event_log.h"

namespace bulkhead {

class PrefixCache {
 public:
  // `before`: hash of the parent's hash and the context.
  using Hash = uint64_t (*)(uint64_t before, absl::Span<const int32_t> tokens);
  static uint64_t GoodHash(uint64_t before, absl::Span<const int32_t> tokens);

  // For blocks 1..num_blocks. `events`, which may be null, is told of each insertion and eviction.
  PrefixCache(int64_t num_blocks, int block_tokens, Hash hash = GoodHash,
              std::shared_ptr<KvEventLog> events = nullptr);
  // Host memory of such a cache.
  static int64_t HostBytes(int64_t num_blocks, int block_tokens);

  int block_tokens() const { return block_tokens_; }
  bool Contains(BlockId block) const { return At(block).cached; }
  // The block with this key; 0 if none.
  BlockId Find(const BlockKey& key) const;
  // Adds `block` with one holder. Neither block nor key may be present.
  void Insert(const BlockKey& key, BlockId block);
  void Acquire(BlockId block);
  // True if that was the last holder: the block is idle.
  bool Release(BlockId block);
  // Evicts the least recently used idle block and returns it; there must be one.
  BlockId EvictOldest();

  // BlockIdentity of a cached block; reads all blocks before it.
  KvDigest Identity(BlockId block) const;

  // Whether a draft model has also computed the tokens of the block.
  bool drafted(BlockId block) const { return At(block).drafted; }
  void SetDrafted(BlockId block) { At(block).drafted = true; }

  int references(BlockId block) const { return At(block).references; }
  BlockId parent(BlockId block) const { return At(block).parent; }
  int64_t num_idle() const { return num_idle_; }

  // Checks the invariants between calls with BH_CHECK. O(blocks): for tests.
  void CheckInvariants() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    BlockId parent = 0;
    BlockId next_in_bucket = 0;
    BlockId older = 0;  // linked list of idle entries; entry 0 closes the ring
    BlockId newer = 0;
    int32_t references = 0;
    int32_t num_children = 0;
    bool cached = false;
    int8_t group = 0;
    bool drafted = false;
    bool is_public = false;  // its events are logged
    KvDigest context = {};
  };

  const Entry& At(BlockId block) const { return entries_[static_cast<size_t>(block)]; }
  Entry& At(BlockId block) { return entries_[static_cast<size_t>(block)]; }
  absl::Span<const int32_t> Tokens(BlockId block) const {
    return absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(block) * block_tokens_,
                                                block_tokens_);
  }
  uint64_t HashOf(const BlockKey& key) const;
  bool Holds(BlockId block, uint64_t hash, const BlockKey& key) const;
  void LeaveIdle(BlockId block);

  int block_tokens_;
  Hash hash_;
  std::vector<Entry> entries_;    // [num_blocks + 1]
  std::vector<int32_t> tokens_;   // [num_blocks + 1, block_tokens]
  std::vector<BlockId> buckets_;  // [power of two]: heads of the chains
  int64_t num_idle_ = 0;
  std::shared_ptr<KvEventLog> events_;
};

}  // namespace bulkhead
