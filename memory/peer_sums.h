// PeerSums: sums between the devices of one host, computed by their own kernels. Every device has
// memory that the others write their partial sums to (kernels/cuda/peer_sum.cuh says how).
// comm/one_shot/ connects the devices; kernels get this struct. Plain C++: .cu files include it.
#pragma once

#include <stdint.h>

namespace bulkhead {

inline constexpr int kMaxPeers = 8;  // devices
// Blocks of every kernel that send; one that norms rows has up to as many more, one per row.
inline constexpr int kPeerBlocks = 32;
inline constexpr int kPeerStates = 2 * kPeerBlocks;  // each keeps its own count of sums
inline constexpr int kPeerThreads = 512;
inline constexpr int64_t kMaxPeerSumElements = int64_t{kPeerBlocks} * kPeerThreads * 4;
// The widest row that the kernel of a sum can also norm.
inline constexpr int64_t kMaxPeerNormCols = 8192;
// Used in rotation: one is written, one is read, one is cleared.
inline constexpr int kPeerBuffers = 3;

// Value of a receive word that no peer has written yet: a NaN that no arithmetic produces.
inline constexpr uint32_t kNothingCame = 0xFFFFFFFFU;

struct PeerSums {
  int rank = 0;
  int size = 0;
  // Elements of the largest sum: a multiple of 4, at most kMaxPeerSumElements.
  int64_t max_elements = 0;
  // By rank: its receive memory, mapped on this device: [kPeerBuffers][size - 1][max_elements].
  // Senders are in ascending order of rank, without the owner.
  uint32_t* received[kMaxPeers] = {};
  uint32_t* own = nullptr;  // received[rank]
  // On this device: [kPeerStates] of 4 words, zero at first.
  uint32_t* state = nullptr;
  // > 0: a kernel gives up when a sum takes longer than this; its result is NaN, and no further sum
  // is possible.
  int64_t limit_ns = 0;

  // Whether the kernel of a sum also norms its rows: the same on every device.
  bool NormsRows(int64_t rows, int64_t cols) const {
    return rows > 0 && rows <= kPeerBlocks && cols > 0 && cols <= kMaxPeerNormCols &&
           cols % 4 == 0 && rows * cols <= max_elements;
  }
};

}  // namespace bulkhead
