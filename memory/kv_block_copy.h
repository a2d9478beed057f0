// Copies blocks of KV between an arena and host memory: for offload and for transfers between
// groups. A block's bytes, KvArena::block_bytes of them, mean the same in every arena of equal
// geometry, whatever its id there; BlockIdentity (memory/block_key.h) says what they hold.
#pragma once

#include <cstddef>

#include "memory/block_id.h"
#include "memory/device.h"
#include "memory/kv_cache.h"

namespace bulkhead {

// Enqueue the copy. `bytes`: host memory, for speed from Device::AllocateHost, valid until the
// device is synchronised.
void ExportKvBlock(const KvArena& arena, BlockId block, Device& device, std::byte* bytes);
void ImportKvBlock(const KvArena& arena, BlockId block, Device& device, const std::byte* bytes);

}  // namespace bulkhead
