// Where the keys and values of one chunk of positions are in the blocks of a sequence: a pointer
// per 16 tokens, followed by pointers to prefetch.
#pragma once

#include "kernels/attend/attention_caches.h"
#include "kernels/attend/attention_rows.h"
#include "kernels/attend/op.h"
#include "kernels/simd/exp_constants.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

inline constexpr int kChunkVectors = kAttentionChunk / kLanes;

template <typename Cache>
class CacheChunk {
 public:
  using Element = typename Cache::Element;

  CacheChunk(const AttentionCall& call, const AttentionUnit& unit) : call_(call), unit_(unit) {}

  Range positions() const { return positions_; }
  const Element* const* keys() const { return keys_; }
  const Element* const* values() const { return values_; }
  // Between the elements of a key, and between the values of adjacent tokens.
  int64_t KeyStride() const { return call_.block_tokens; }
  int64_t ValueStride() const { return call_.head_dim / Cache::kNumbers; }
  TokenScalings KeyScalings() const { return {scaling_[0], scaling_[1]}; }
  TokenScalings ValueScalings() const { return {scaling_[2], scaling_[3]}; }

  // Positions relative to the chunk's begin, and the vectors of 16 tokens that hold them.
  Range FromBegin(Range seen) const {
    return {seen.begin - positions_.begin, seen.end - positions_.begin};
  }
  Range VectorsOf(Range seen) const {
    return {(seen.begin - positions_.begin) / kLanes,
            (seen.end - positions_.begin + kLanes - 1) / kLanes};
  }

  // Locates the part of chunk `chunk` in `visible`, which must not be empty. The next chunk's first
  // keys are fetched while the last values are read.
  void Locate(int chunk, Range visible) {
    positions_ = {chunk * kAttentionChunk, (chunk + 1) * kAttentionChunk};
    const Range vectors = VectorsOf(Common(visible, positions_));
    LocateVectors(vectors);
    LookAhead(vectors, chunk + 1, visible);
  }

 private:
  // The head's part of the block that holds `position`.
  const char* HeadAt(int position) const {
    return HeadOfBlock(unit_.blocks[position / call_.block_tokens]);
  }
  const char* HeadOfBlock(int64_t block) const {
    return call_.kv + block * call_.block_bytes + unit_.kv_head * call_.head_bytes;
  }
  int NumScalings() const { return call_.latent ? 2 : 4; }

  void LocateVectors(Range vectors) {
    const int first = positions_.begin + vectors.begin * kLanes;
    const int32_t* block = unit_.blocks + first / call_.block_tokens;
    int offset = first % call_.block_tokens;
    for (int v = vectors.begin; v < vectors.end; ++v, offset += kLanes) {
      if (offset == call_.block_tokens) {
        offset = 0;
        ++block;
      }
      const char* head = HeadOfBlock(*block);
      keys_[v] = reinterpret_cast<const Element*>(head) + offset;
      values_[v] =
          reinterpret_cast<const Element*>(head + call_.values_offset) + offset * ValueStride();
      if constexpr (Cache::kQuantized) WidenScaling(head + call_.scaling_offset, offset, v);
    }
  }

  // While the last keys are read the first values are fetched, and while the last values are read
  // the next chunk's first keys. Its scaling, stored far apart, is fetched at once.
  void LookAhead(Range vectors, int next_chunk, Range visible) {
    for (int i = 0; i < kAttentionAhead; ++i) {
      keys_[vectors.end + i] = values_[Min(vectors.begin + i, vectors.end - 1)];
      values_[vectors.end + i] = values_[vectors.end - 1];
    }
    if (next_chunk == unit_.chunk_end) return;
    const int begin = next_chunk * kAttentionChunk;
    const Range seen = Common(visible, {begin, begin + kAttentionChunk});
    const int first = seen.begin / kLanes * kLanes;
    for (int i = 0; first + i * kLanes < seen.end; ++i) {
      const int64_t offset = (first + i * kLanes) % call_.block_tokens;
      const char* head = HeadAt(first + i * kLanes);
      if (i < kAttentionAhead) {
        values_[vectors.end + i] = reinterpret_cast<const Element*>(head) + offset;
      }
      if constexpr (Cache::kQuantized) {
        const uint16_t* scaling = reinterpret_cast<const uint16_t*>(head + call_.scaling_offset);
        for (int j = 0; j < NumScalings(); ++j) Prefetch(scaling + j * call_.block_tokens + offset);
      }
    }
  }

  void WidenScaling(const char* scaling, int64_t offset, int v) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(scaling) + offset;
    for (int i = 0; i < NumScalings(); ++i, p += call_.block_tokens) {
      Store(scaling_[i] + v * kLanes, LoadF16(p));
    }
  }

  const AttentionCall& call_;
  const AttentionUnit& unit_;
  Range positions_{};
  const Element* keys_[kChunkVectors + kAttentionAhead];
  const Element* values_[kChunkVectors + kAttentionAhead];
  // The tokens' key scales, key zeros, value scales and value zeros.
  float scaling_[4][Cache::kQuantized ? kAttentionChunk : 1];
};

}  // namespace bulkhead::BH_ISA
