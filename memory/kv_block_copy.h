// Copies blocks of KV between an arena and host memory, by layers and block: for offload and for
// transfers between groups. A block's bytes mean the same in every arena of equal geometry,
// whatever its id there: who moves blocks says by BlockIdentity (memory/block_key.h) what they
// hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/block_id.h"
#include "memory/device.h"
#include "memory/kv_cache.h"

namespace bulkhead {

// Layers [begin, end) of an arena.
struct KvLayers {
  int begin = 0;
  int end = 0;
};

// Of a block in these layers: [layer][kv head], as in the arena.
int64_t KvBlockBytes(const KvArena& arena, KvLayers layers);

// Enqueue the copies of KvBlockBytes. `bytes`: host memory, of Device::AllocateHost for speed,
// valid until the device is synchronised.
void ExportKvBlock(const KvArena& arena, KvLayers layers, BlockId block, Device& device,
                   std::byte* bytes);
void ImportKvBlock(const KvArena& arena, KvLayers layers, BlockId block, Device& device,
                   const std::byte* bytes);

}  // namespace bulkhead
