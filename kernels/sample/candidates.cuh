// The likeliest entries of a row, found by one block: candidates are collected in shared memory and
// sorted whenever there may be no room for more; what is not among the best so far never enters.
// Their order there depends on the threads, what the sort makes of them does not.
#pragma once

#include "base/token_sampling.h"
#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kSelectThreads = 512;

// The greater, the likelier; no two ids have the same. 0: no entry.
using CandidateKey = uint64_t;

BH_DEVICE CandidateKey KeyOf(float logit, int32_t id) {
  const uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 is +0
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  const uint32_t ordered = is_nan ? ~0U : bits >> 31 != 0 ? ~bits : bits | 0x80000000;
  return CandidateKey{ordered} << 32 | ~static_cast<uint32_t>(id);
}
BH_DEVICE float LogitOf(CandidateKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered >> 31 != 0 ? ordered ^ 0x80000000 : ~ordered);
}
BH_DEVICE int32_t IdOf(CandidateKey key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}
// Whether it is neither NaN nor +inf, and whether it is not -inf.
BH_DEVICE bool IsFinite(CandidateKey key) { return key >> 32 < 0xFF800000; }
BH_DEVICE bool CanBeSampled(CandidateKey key) { return key >> 32 > 0x007FFFFF; }

inline constexpr int kSortKeys = 1024;

// Sorts keys [n], a power of two, the greatest first; begins and ends with what a barrier promises.
BH_DEVICE void SortKeys(CandidateKey* keys, int n) {
  for (int run = 2; run <= n; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int i = int(threadIdx.x); i < n / 2; i += int(blockDim.x)) {
        const int first = (i & ~(apart - 1)) * 2 + (i & (apart - 1));
        const CandidateKey a = keys[first];
        const CandidateKey b = keys[first + apart];
        if ((a < b) != ((first & run) == 0)) continue;
        keys[first] = b;
        keys[first + apart] = a;
      }
      __syncthreads();
    }
  }
}

// Sorts the first `held` of kSortKeys keys, and puts 0 behind them.
BH_DEVICE void SortHeld(CandidateKey* keys, int held) {
  for (int i = held + int(threadIdx.x); i < kSortKeys; i += int(blockDim.x)) keys[i] = 0;
  __syncthreads();
  SortKeys(keys, kSortKeys);
}

// The greatest kCandidates of key_at(0) .. key_at(count - 1) into keys [kSortKeys], sorted, 0 where
// there are fewer. Takes kSelectThreads threads; `next` is shared, too.
template <typename KeyAt>
BH_DEVICE void SelectBest(const KeyAt& key_at, int count, CandidateKey* keys, int* next) {
  constexpr int kAhead = 8;  // reads in flight
  if (int(threadIdx.x) == 0) *next = 0;
  __syncthreads();
  int held = 0;
  CandidateKey worst = 0;  // of the best so far
  for (int begin = 0; begin < count; begin += kSelectThreads * kAhead) {
    CandidateKey ahead[kAhead];
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int at = begin + i * kSelectThreads + int(threadIdx.x);
      ahead[i] = at < count ? key_at(at) : 0;
    }
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const bool better = ahead[i] > worst;
      if (better) keys[atomicAdd(next, 1)] = ahead[i];
      held += __syncthreads_count(better);
      if (held <= kSortKeys - kSelectThreads) continue;  // the next ones have room
      SortHeld(keys, held);
      held = kCandidates;
      worst = keys[kCandidates - 1];
      if (int(threadIdx.x) == 0) *next = held;
      __syncthreads();
    }
  }
  SortHeld(keys, held);
}

}  // namespace bulkhead::cuda
