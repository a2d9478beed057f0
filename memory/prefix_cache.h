// PrefixCache: which full blocks of the KV cache hold which tokens, so that a prompt that begins as
// an earlier one did is not computed again. Accounting only: no clock, no device, no I/O. Not
// thread-safe: the block pool owns it.
//
// A block is known by the block before it, its tokens and, at the beginning of a sequence, its
// salt: sequences of different salts share nothing. Hashes only find candidates. A hit compares
// tokens and salt, and its parent is the very block that was found before, so equal hashes of
// different tokens cost time and nothing else.
//
// A block that nobody holds stays, idle, until it is the one that has been idle longest and room is
// needed. Whoever holds a block holds every block before it, too, and lets go of the last one
// first: so the children of an idle block are idle for longer, and no block goes before those that
// name it as their parent.
//
// All memory is taken by the constructor.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/block_id.h"

namespace bulkhead {

inline constexpr int kMaxCacheSaltBytes = 128;

// What a full block holds: K and V are a function of it.
struct BlockKey {
  BlockId parent = 0;                // the block before it; 0: it is the first
  absl::string_view salt;            // of a first block; behind it the parent stands for it
  absl::Span<const int32_t> tokens;  // a block's worth
};

class PrefixCache {
 public:
  // `before`: the parent's hash, or the salt's.
  using Hash = uint64_t (*)(uint64_t before, absl::Span<const int32_t> tokens);
  static uint64_t GoodHash(uint64_t before, absl::Span<const int32_t> tokens);

  // For blocks 1..num_blocks.
  PrefixCache(int64_t num_blocks, int block_tokens, Hash hash = GoodHash);
  // What such a cache takes of the host's memory.
  static int64_t HostBytes(int64_t num_blocks, int block_tokens);

  int block_tokens() const { return block_tokens_; }
  bool Contains(BlockId block) const { return At(block).cached; }
  // The block that holds this; 0 when there is none.
  BlockId Find(const BlockKey& key) const;
  // Remembers `block`, held once from now on. It must be new, and so must what it holds.
  void Insert(const BlockKey& key, BlockId block);
  void Acquire(BlockId block);
  // True when nobody holds it any more: it is idle.
  bool Release(BlockId block);
  // Forgets the block that has been idle longest and returns it; there is one.
  BlockId EvictOldest();

  int references(BlockId block) const { return At(block).references; }
  BlockId parent(BlockId block) const { return At(block).parent; }
  int64_t num_idle() const { return num_idle_; }

  // Checks what must hold between calls with BH_CHECK. O(blocks): for tests.
  void CheckInvariants() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    BlockId parent = 0;
    BlockId next_in_bucket = 0;
    BlockId older = 0;  // among the idle ones; entry 0 closes the ring
    BlockId newer = 0;
    int32_t references = 0;
    int32_t num_children = 0;
    int32_t salt_bytes = 0;
    bool cached = false;
  };

  const Entry& At(BlockId block) const { return entries_[static_cast<size_t>(block)]; }
  Entry& At(BlockId block) { return entries_[static_cast<size_t>(block)]; }
  int32_t* Tokens(BlockId block) { return &tokens_[static_cast<size_t>(block) * block_tokens_]; }
  char* Salt(BlockId block) { return &salts_[static_cast<size_t>(block) * kMaxCacheSaltBytes]; }
  uint64_t HashOf(const BlockKey& key) const;
  bool Holds(BlockId block, uint64_t hash, const BlockKey& key) const;
  void LeaveIdle(BlockId block);

  int block_tokens_;
  Hash hash_;
  std::vector<Entry> entries_;    // [num_blocks + 1]
  std::vector<int32_t> tokens_;   // [num_blocks + 1, block_tokens]
  std::vector<char> salts_;       // [num_blocks + 1, kMaxCacheSaltBytes]
  std::vector<BlockId> buckets_;  // [a power of two]: the first of a list
  int64_t num_idle_ = 0;
};

}  // namespace bulkhead
