// How kernels add the partial sums of a host's devices. Each device sends its partial sum to all
// others, into its own place in their memory, and waits until theirs have arrived in its own. A
// word has arrived when it is no longer kNothingCame: there are no flags, and so no fence between
// numbers and flag, and no order of the 4 words of a vector is relied on. A thread waits only for
// the numbers that it adds.
// * The plain sum (peer_sum.cu): block b of a device needs only block b of the others, and each
//   sends before it waits, so that it does not matter which blocks run concurrently.
// * The sum with normed rows (peer_sum_norm.cu): kPeerBlocks blocks send and wait for nothing. The
//   others, one per row and so at most kPeerBlocks, wait for other devices' sends. A device with
//   more multiprocessors than that has room for one that sends beside all that wait, and so for one
//   after the other. No kernel takes that room forever: the previous one ends on its own, and the
//   next one begins when all blocks of this one have begun.
// All devices run the same kernel for a sum.
//
// Three buffers are used in rotation. In sum n a device sends to buffer n % 3, reads its own buffer
// n % 3, and clears its own buffer (n - 1) % 3 = (n + 2) % 3, for sum n + 2.
// * The clearing destroys nothing: data of sum n - 1 was read by kernel n - 1, which ended before
//   kernel n clears or sends (GridDependencySynchronize). No device sends to it meanwhile: a device
//   sends for sum n + 2 when its kernel n + 1 has ended, so it has received what this device sends
//   for sum n + 1, in kernel n + 1, which begins to send when kernel n has ended.
// * For the same reason data of sum n + 2 arrives in a buffer that is cleared.
// With two buffers a device would clear, in sum n, what a faster one sends to for sum n + 1.
//
// Kernels between two sums (products, sums by NCCL) do not change this: they only add ordering. The
// count of sums is in device memory, one per block, since graphs are replayed: every kernel counts
// for all kPeerStates blocks, including those with nothing to do.
#pragma once

#include "kernels/cuda/out_rows.cuh"
#include "memory/peer_sums.h"
#include "peer_intrinsics.h"

namespace bulkhead::cuda {

// A block's state for its next sum.
struct alignas(16) PeerState {
  uint32_t buffer = 0;
  uint32_t last_count = 0;  // elements of the previous sum, rounded up to 4
  uint32_t unused[2] = {};
};

BH_DEVICE PeerState PeerStateOfBlock(const PeerSums& sums) {
  return LoadVector<PeerState>(sums.state + int(blockIdx.x) * 4);
}

// Where `sender` (its index among the others) writes in the receive memory `received`.
template <int kRanks>
BH_DEVICE uint32_t* PeerPlace(const PeerSums& sums, uint32_t* received, uint32_t buffer,
                              int sender) {
  return received + (int64_t{buffer} * (kRanks - 1) + sender) * sums.max_elements;
}

BH_DEVICE uint32_t Sendable(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits == kNothingCame ? 0x7FFFFFFFU : bits;
}

// Sends elements [at, at + 4) to all others.
template <int kRanks>
BH_DEVICE void SendToPeers(const PeerSums& sums, const PeerState& state, int at, const Floats4& x) {
  const Words4 words = {{Sendable(x.v[0]), Sendable(x.v[1]), Sendable(x.v[2]), Sendable(x.v[3])}};
  BH_UNROLL
  for (int peer = 0; peer < kRanks; ++peer) {
    if (peer == sums.rank) continue;
    const int sender = sums.rank < peer ? sums.rank : sums.rank - 1;
    SendWords(PeerPlace<kRanks>(sums, sums.received[peer], state.buffer, sender) + at, words);
  }
}

// Clears this thread's part of the previous sum's buffer; after its own sends, so that they leave
// first.
template <int kRanks>
BH_DEVICE void ClearLastSum(const PeerSums& sums, const PeerState& state) {
  static_assert(kPeerBuffers == 3);
  const int at = (int(blockIdx.x) * kPeerThreads + int(threadIdx.x)) * 4;
  if (at >= int(state.last_count)) return;
  const uint32_t last = state.buffer == 0 ? 2 : state.buffer - 1;
  BH_UNROLL
  for (int sender = 0; sender < kRanks - 1; ++sender) {
    ClearWords(PeerPlace<kRanks>(sums, sums.own, last, sender) + at, kNothingCame);
  }
}

// The sum of ranks [kBegin, kEnd): a binary tree, the larger half first.
template <int kBegin, int kEnd, int kRanks>
BH_DEVICE float TreeSum(const float (&x)[kRanks]) {
  if constexpr (kEnd - kBegin == 1) {
    return x[kBegin];
  } else {
    constexpr int kMiddle = kBegin + (kEnd - kBegin + 1) / 2;
    return TreeSum<kBegin, kMiddle>(x) + TreeSum<kMiddle, kEnd>(x);
  }
}

// Adds elements [at[v], at[v] + 4) for each v; x[v] has this rank's and gets the sum; at[v]
// negative: none. Waits for the others'. On timeout sets `late`, and sums are NaN.
template <int kRanks, int kVectors>
BH_DEVICE void SumOfPeers(const PeerSums& sums, const PeerState& state, const int (&at)[kVectors],
                          Floats4 (&x)[kVectors], bool& late) {
  Words4 words[kVectors][kRanks] = {};
  const int64_t began = sums.limit_ns > 0 ? DeviceNanos() : 0;
  while (true) {
    bool complete = true;
    BH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (at[v] < 0) continue;
      BH_UNROLL
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == sums.rank) continue;
        const int sender = peer < sums.rank ? peer : peer - 1;
        words[v][peer] =
            ReceivedWords(PeerPlace<kRanks>(sums, sums.own, state.buffer, sender) + at[v]);
      }
    }
    BH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      BH_UNROLL
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == sums.rank) continue;
        BH_UNROLL
        for (int i = 0; i < 4; ++i) complete = complete && words[v][peer].w[i] != kNothingCame;
      }
    }
    if (complete || late) break;
    if (sums.limit_ns > 0 && DeviceNanos() - began > sums.limit_ns) late = true;
    WaitTurn();
  }
  BH_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      float terms[kRanks];
      BH_UNROLL
      for (int peer = 0; peer < kRanks; ++peer) {
        terms[peer] =
            __uint_as_float(peer == sums.rank ? Sendable(x[v].v[i]) : words[v][peer].w[i]);
      }
      x[v].v[i] = TreeSum<0, kRanks>(terms);
    }
  }
}

// Last call in a block; `for_row`: also counts for the block that would add row blockIdx.x.
BH_DEVICE void EndPeerSum(const PeerSums& sums, PeerState state, int count, bool for_row) {
  __syncthreads();  // all have read the state
  if (int(threadIdx.x) != 0) return;
  state.buffer = state.buffer == 2 ? 0 : state.buffer + 1;
  state.last_count = static_cast<uint32_t>(count + 3) / 4 * 4;
  StoreVector(sums.state + int(blockIdx.x) * 4, state);
  if (for_row) StoreVector(sums.state + (kPeerBlocks + int(blockIdx.x)) * 4, state);
}

}  // namespace bulkhead::cuda
