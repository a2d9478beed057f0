// BlockKey: what the K and V of a full block are a function of, and the identity that follows from
// it, which is the same in every process: KV events, offload and transfers can name blocks by it.
// Pure functions. The model, its formats and the group size are not part of it: compare those
// first before comparing identities of two processes.
//
// KvDigest is SHA-256 of the fields named below, one after the other. Integers are little-endian; a
// string is its length (u32), then its bytes. A tag is a string.
//   sequence  tag "bulkhead.kv.sequence.1", salt, adapter; zeros when both are empty
//   context   of block 0: sequence; of other blocks: zeros. Where given rows are in the block:
//             tag "bulkhead.kv.content.1", that context, then for each span in ascending order its
//             content, and (u64 each) its first row in the block, that row's index in the span and
//             the number of its rows in the block
//   identity  tag "bulkhead.kv.block.1", the parent's identity (zeros for none), context, the
//             number of tokens (u32), tokens (i32 each); of a group above 0 that group (u32)
//
// A block of KV group 0 stands for its tokens. The other groups' blocks for the same tokens have it
// as their parent.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/block_id.h"

namespace bulkhead {

using KvDigest = std::array<uint8_t, 32>;

struct BlockKey {
  BlockId parent = 0;                // previous block, 0: first block; other groups: group 0's
  absl::Span<const int32_t> tokens;  // block_tokens of them
  KvDigest context = {};             // what else K and V depend on; zeros: nothing
  int group = 0;

  // The key of the same tokens in another group.
  BlockKey InGroup(int other, BlockId first) const { return {first, tokens, context, other}; }
};

// Consecutive rows of a sequence whose embeddings are given, not looked up by token id.
struct ContentSpan {
  int64_t begin = 0;  // position of the first
  int64_t end = 0;
  KvDigest content = {};  // of all of its rows
};

// A sequence as the cache knows it.
struct SequenceKey {
  KvDigest sequence = {};  // SequenceDigest
  absl::Span<const int32_t> tokens;
  absl::Span<const ContentSpan> spans = {};  // ascending, disjoint

  // The key of block i, which must be full.
  BlockKey Block(int64_t i, int block_tokens, BlockId parent) const;
};

// `salt`: sequences with different ones share nothing. `adapter`: the name of the weights added to
// the model's; empty: none.
KvDigest SequenceDigest(absl::string_view salt, absl::string_view adapter = "");

// Ignores `key.parent`: `parent` is its identity, zeros for none.
KvDigest BlockIdentity(const KvDigest& parent, const BlockKey& key);

}  // namespace bulkhead
