// A prefix of a KvBlockPool, looked up anew.
#pragma once

#include "memory/kv_block_pool.h"

namespace bulkhead {

// The longest cached run of full blocks at the start of the sequence.
inline CachedPrefix FindPrefix(const KvBlockPool& pool, const SequenceKey& key) {
  CachedPrefix prefix;
  pool.UpdatePrefix(key, prefix);
  return prefix;
}

}  // namespace bulkhead
