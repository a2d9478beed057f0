// The inputs of warpgroups.cuh: a separate warpgroup copies them to shared memory, as rows of
// warpgroup products, and sums them for the zeros of codes.
#pragma once

#include "intrinsics.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/linear_copies.cuh"
#include "kernels/matmul/warpgroup_stages.h"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {

// The depth that a block multiplies, in steps of 64 inputs: all pairs of parts, one after the
// other, or one pair.
struct PairsOfBlock {
  int num_pairs = 1;
  bool in_parts = false;  // one pair: its sums go to memory
  int part_steps = 0;
  int begin = 0;
  int count = 0;  // the last parts may be shorter, or empty

  BH_DEVICE PairsOfBlock(const WarpgroupLinearParameters& p) {
    const int all = p.product.weight.depth / kDepthGranule;
    part_steps = (all + p.product.parts - 1) / p.product.parts;
    in_parts = p.part_out != nullptr;
    if (!in_parts) num_pairs = p.product.parts / 2;
    const int of_block = 2 * num_pairs * part_steps;
    begin = int(blockIdx.z) * of_block;
    if (begin > all) begin = all;
    count = all - begin < of_block ? all - begin : of_block;
  }
};

struct alignas(8) FloatPair {
  float v[2];
};

// The inputs of a block's step, and the sums of a chunk's inputs.
template <WeightFormat kFormat, int kTokens>
BH_DEVICE unsigned char* InputsOf(int step) {
  constexpr WarpgroupStages kStages{kFormat, kTokens};
  return SharedMemory() + step % (2 * kStages.barrier_steps) * (kTokens * 128);
}
template <WeightFormat kFormat, int kTokens>
BH_DEVICE float* SumsOfInputs(int chunk) {
  constexpr WarpgroupStages kStages{kFormat, kTokens};
  constexpr int kAt = kStages.SumsAt() - kStages.sum_slots * kTokens * 4;
  constexpr int kSlots = kStages.sum_slots > 0 ? kStages.sum_slots : 1;
  return reinterpret_cast<float*>(SharedMemory() + kAt) + chunk % kSlots * kTokens;
}

// Where sums of inputs restart: at each cell, and at each part.
struct CellEnds {
  int until = 0;  // chunks from the first of the step to the cell's end
  const int32_t* next = nullptr;
  int32_t next_cell = 0;

  BH_DEVICE void Begin(const PackedWeight& weight, int chunk) {
    next = weight.chunk_cell + chunk;
    next_cell = *next;
    Advance();
  }
  // As in Cells::Load.
  BH_DEVICE void Advance() {
    until += ChunksLeftOf(next_cell);
    next += ChunksLeftOf(next_cell);
    next_cell = *next;
  }
};

// A warp's tiles of 8 tokens. A lane has inputs 8 (lane % 4) to 8 (lane % 4) + 7 of each chunk, of
// token lane / 4 of each tile.
template <WeightFormat kFormat, int kTokens>
class InputCopies {
 public:
  static constexpr WarpgroupStages kStages{kFormat, kTokens};
  static constexpr bool kAddsUp = kFormat == WeightFormat::kInt4;
  static constexpr int kTiles = kTokens > 32 ? kTokens / 32 : 1;
  static constexpr int kTileBytes = 1024;  // per step
  static constexpr int kPlaces = kStages.places;
  static constexpr int kPlaceBytes = kTokens * 128;

  // warp: among the copying ones; from kTokens / 8 / kTiles on they have nothing to do.
  BH_DEVICE InputCopies(const LinearParameters& p, const PairsOfBlock& pairs, int warp,
                        unsigned char* places)
      : pairs_(pairs), first_tile_(warp * kTiles), places_(places + first_tile_ * kTileBytes) {
    BH_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int token = (first_tile_ + t) * 8 + LaneIndex() / 4;
      there_[t] = token < p.tokens;
      from_[t] = p.x + static_cast<int64_t>(there_[t] ? token : 0) * p.weight.depth +
                 pairs.begin * kDepthGranule + LaneIndex() % 4 * 8;
    }
    if constexpr (kAddsUp) {
      if (pairs.count > 0) ends_.Begin(p.weight, 2 * pairs.begin);
    }
  }

  // Inputs are stored barrier_steps ahead of the products. At each __syncthreads the next steps'
  // inputs are visible to the products, and no thread still reads those that are replaced next.
  BH_DEVICE void CopyAll() {
    constexpr int kAhead = kStages.barrier_steps;
    const bool has_tile = first_tile_ < kTokens / 8;
    BH_UNROLL
    for (int i = 0; i < kPlaces - 1; ++i) {
      if (has_tile && i < pairs_.count) Copy(places_ + i * kPlaceBytes);
      CpAsyncCommit();
    }
    int place = 0;
    BH_NO_UNROLL
    for (int step = 0; step < pairs_.count + kAhead; ++step) {
      if (step >= kAhead && step % kAhead == 0) {
        FenceForProducts();
        __syncthreads();
      }
      if (step >= pairs_.count) continue;
      CpAsyncWait<kPlaces - 2>();
      if (has_tile) {
        Store(step, places_ + place * kPlaceBytes);
        if (step + kPlaces - 1 < pairs_.count) {
          Copy(places_ + (place > 0 ? place - 1 : kPlaces - 1) * kPlaceBytes);
        }
      }
      CpAsyncCommit();
      place = place + 1 < kPlaces ? place + 1 : 0;
    }
    CpAsyncWait<0>();
  }

 private:
  // Copies the next step.
  BH_DEVICE void Copy(unsigned char* place) {
    BH_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      BH_UNROLL
      for (int chunk = 0; chunk < 2; ++chunk) {
        CpAsync16(place + t * kTileBytes + (chunk * kWarp + LaneIndex()) * 16,
                  from_[t] + chunk * kChunkInputs, there_[t]);
      }
      from_[t] += kDepthGranule;
    }
  }

  BH_DEVICE void Store(int step, const unsigned char* place) {
    bool ends[2] = {};  // whether the sum of inputs ends after each chunk
    if constexpr (kAddsUp) Advance(ends);
    BH_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      unsigned char* const tile = InputsOf<kFormat, kTokens>(step) + (first_tile_ + t) * kTileBytes;
      BH_UNROLL
      for (int chunk = 0; chunk < 2; ++chunk) {
        const Words4 words =
            LoadVector<Words4>(place + t * kTileBytes + (chunk * kWarp + LaneIndex()) * 16);
        StoreChunk(tile, chunk, words);
        if constexpr (kAddsUp) AddUp(2 * step + chunk, t, words, ends[chunk]);
      }
    }
  }
  // Word i of the four lanes of a token is 16 bytes of its row, laid out like a row of a warpgroup
  // product's tile.
  BH_DEVICE static void StoreChunk(unsigned char* tile, int chunk, const Words4& words) {
    unsigned char* const row = tile + LaneIndex() / 4 * 128 + LaneIndex() % 4 * 4;
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int piece = (4 * chunk + i) ^ LaneIndex() / 4;
      *reinterpret_cast<uint32_t*>(row + piece * 16) = words.w[i];
    }
  }

  BH_DEVICE void Advance(bool (&ends)[2]) {
    part_step_ = part_step_ + 1 < pairs_.part_steps ? part_step_ + 1 : 0;
    BH_UNROLL
    for (int chunk = 0; chunk < 2; ++chunk) {
      if (ends_.until == chunk) ends_.Advance();
      ends[chunk] = ends_.until == chunk + 1 || (chunk == 1 && part_step_ == 0);
    }
    ends_.until -= 2;
  }
  // As Sums::AddInputs, with the same bits. The sum so far is stored after each chunk.
  BH_DEVICE void AddUp(int chunk, int t, const Words4& words, bool ends) {
    constexpr uint32_t kOnes[4] = {kBf16Of1, kBf16Of1, kBf16Of1, kBf16Of1};
    float sums[4] = {sums_[t].v[0], sums_[t].v[1], sums_[t].v[0], sums_[t].v[1]};  // rows are equal
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t b[2] = {words.w[2 * half], words.w[2 * half + 1]};
      MmaBf16(sums, kOnes, b);
    }
    if (LaneIndex() < 4) {
      float* const to = SumsOfInputs<kFormat, kTokens>(chunk) + (first_tile_ + t) * 8;
      StoreVector(to + LaneIndex() * 2, FloatPair{sums[0], sums[1]});
    }
    BH_UNROLL
    for (int i = 0; i < 2; ++i) sums_[t].v[i] = ends ? 0.0F : sums[i];
  }

  const PairsOfBlock pairs_;
  const int first_tile_;
  unsigned char* const places_;
  const uint16_t* from_[kTiles];
  bool there_[kTiles];
  int part_step_ = 0;
  FloatPair sums_[kTiles] = {};
  CellEnds ends_;
};

}  // namespace bulkhead::cuda
