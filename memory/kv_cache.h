// The KV cache of one rank: its geometry (pure arithmetic), and the arena that holds the blocks.
//
// Layout. One block holds `block_tokens` tokens of the layers of one KV group (memory/limits.h);
// the arena is [block][layer of the group][kv head], and all blocks have the size that the largest
// group needs. Layers may have different heads.
// Block 0 is never allocated: padding writes there. Each KV head has, in order:
//   keys      [d][token]: one element of neighbouring tokens is one vector of scores
//   values    [token][d]
//   scaling   int8 and int4 only, f16: key scales [token], key zeros, value scales, value zeros
// A latent cache (multi-head latent attention) has only keys and their scaling: a value is the
// first columns of its key. Elements are f32, bf16, f16, or one-byte codes. int4 packs two codes
// per byte, the first one in the low half, so that a mask and a shift unpack two whole vectors:
//   keys      [d/2][token]: elements 2i and 2i + 1
//   values    [token][d/2]: groups of w = 32 columns, the last one may be shorter; byte j of a
//             group holds its columns j and j + w/2
//
// Numbers. f32, bf16 and f16: rounded to nearest even. int8 and int4: each key and each value of a
// head, d numbers x, separately, with levels = 255 or 15; every operation in f32, rounded once:
//   min, max   of the d numbers, clamped to +-65504, the f16 range; never -0
//   scale      (max - min) / levels, rounded to f16               zero   min, rounded to f16
//   code       (x - zero) * (1 / scale), clamped to [0, levels], then rounded to an integer;
//              0 if scale is 0 (all x equal within f16 precision)
//   read back  fma(code, scale, zero)
// fp8 (OCP e4m3): each number x of a KV head, with one f32 scale of the layer for the head's keys
// and another for its values (KvLayerView; a latent cache has only the keys' scale):
//   code       e4m3 of x / scale, which is first rounded to f32 and saturates at +-448; 0x7f, a
//              NaN, for a NaN or an infinity
//   read back  code * scale; Attend multiplies scores and outputs by the scales, not each number
// All roundings are to nearest even. In int8 and int4 a NaN or an infinity among the d numbers
// makes scale and zero NaN (0x7e00) and the codes 0: the whole token reads as NaN, so an upstream
// error stays visible.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "memory/kv_format.h"

namespace bulkhead {

// Shape of a layer's keys and values.
struct KvGeometry {
  int kv_heads = 0;      // k: on this rank; 0 is legal
  int head_dim = 0;      // d; even with int4
  int block_tokens = 0;  // a power of two in [16, 256], so that it divides an attention chunk
  KvFormat format = KvFormat::kF32;
  bool latent = false;  // one vector per token and KV head, which is key and value

  // Keys and values, or only keys.
  int num_parts() const { return latent ? 1 : 2; }
  // Bytes of the elements of one key, or of one value.
  int64_t TokenBytes() const {
    const int64_t bits = int64_t{head_dim} * KvElementBits(format);
    BH_CHECK(bits % 8 == 0);
    return bits / 8;
  }
  int64_t KeysBytes() const { return block_tokens * TokenBytes(); }  // values take the same
  int64_t HeadBytes() const {  // of one head, one block, one layer
    return num_parts() * block_tokens * (TokenBytes() + KvScalingBytes(format));
  }
  int64_t LayerBlockBytes() const { return kv_heads * HeadBytes(); }  // of one block
};

// One layer, as seen by attention and AppendKv.
struct KvLayerView {
  KvGeometry geometry;
  std::byte* base = nullptr;  // of block 0; not owned
  int64_t block_stride = 0;   // bytes between two blocks
  // fp8 only: [kv_heads] in the cache's memory; null: all are 1.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;

  // Where the host can access that memory.
  float KeyScale(int64_t head) const { return key_scales == nullptr ? 1.0F : key_scales[head]; }
  float ValueScale(int64_t head) const {
    if (geometry.latent) return KeyScale(head);
    return value_scales == nullptr ? 1.0F : value_scales[head];
  }
  std::byte* Keys(int64_t block, int64_t head) const {
    return base + block * block_stride + head * geometry.HeadBytes();
  }
  std::byte* Values(int64_t block, int64_t head) const {
    return Keys(block, head) + geometry.KeysBytes();
  }
  // [2 parts][block_tokens]; int8 and int4 only
  uint16_t* Scaling(int64_t block, int64_t head) const {
    return reinterpret_cast<uint16_t*>(Keys(block, head) +
                                       geometry.num_parts() * geometry.KeysBytes());
  }
};

// Where a layer's cache is: in which group's blocks, and at what offset in them. A layer that reads
// another layer's keys and values has that layer's place.
struct LayerPlace {
  int group = 0;
  int64_t offset_bytes = 0;
  KvGeometry geometry;
  int state_layer = 0;  // for a layer with a state and no cache: its layer in the StateArena
};

struct KvArena {
  int64_t num_blocks = 0;  // usable blocks; the arena also holds block 0
  int64_t block_bytes = 0;
  std::byte* base = nullptr;

  KvLayerView Layer(const LayerPlace& place) const {
    return {place.geometry, base + place.offset_bytes, block_bytes};
  }
};

}  // namespace bulkhead
