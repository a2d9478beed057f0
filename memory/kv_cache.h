// The KV cache of one rank: its geometry (pure arithmetic), and the arena that holds the blocks.
//
// One block holds `block_tokens` tokens of every layer. Within a layer, a block and a KV head the
// keys lie as [d][token] and then the values as [token][d]. Block 0 is never handed out: padding
// writes there. The arena is [layer][block][kv head][keys | values].
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/kv_format.h"

namespace bulkhead {

struct KvGeometry {
  int num_layers = 0;
  int kv_heads = 0;      // k: on this rank; 0 is legal
  int head_dim = 0;      // d
  int block_tokens = 0;  // a power of two in [16, 256], so that it divides an attention chunk
  KvFormat format = KvFormat::kF32;

  int64_t HeadBytes() const {  // keys and values of one head, one block, one layer
    return int64_t{2} * head_dim * block_tokens * KvElementBits(format) / 8;
  }
  int64_t LayerBlockBytes() const { return kv_heads * HeadBytes(); }
  int64_t BlockBytes() const { return num_layers * LayerBlockBytes(); }
};

// What attention and AppendKv see of one layer.
struct KvLayerView {
  KvGeometry geometry;
  std::byte* base = nullptr;

  std::byte* Keys(int64_t block, int64_t head) const {  // [d][block_tokens]
    return base + block * geometry.LayerBlockBytes() + head * geometry.HeadBytes();
  }
  std::byte* Values(int64_t block, int64_t head) const {  // [block_tokens][d]
    return Keys(block, head) + geometry.HeadBytes() / 2;
  }
};

struct KvArena {
  KvGeometry geometry;
  int64_t num_blocks = 0;  // usable ones; the arena holds one more, block 0
  std::byte* base = nullptr;

  KvLayerView Layer(int layer) const {
    return KvLayerView{geometry, base + layer * (num_blocks + 1) * geometry.LayerBlockBytes()};
  }
};

}  // namespace bulkhead
