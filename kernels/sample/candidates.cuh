// The most likely entries of a row, found by one block: the threads' maxima give a lower bound;
// entries that reach it, usually a few hundred, are collected in shared memory and sorted, also in
// between when room may run out. The order of collection depends on the threads; the sorted result
// does not.
#pragma once

#include "base/token_sampling.h"
#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kSelectThreads = 512;

// A greater key is likelier; keys of different ids differ. 0: no entry.
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
// Whether the logit is neither NaN nor +inf, and whether it is not -inf.
BH_DEVICE bool IsFinite(CandidateKey key) { return key >> 32 < 0xFF800000; }
BH_DEVICE bool CanBeSampled(CandidateKey key) { return key >> 32 > 0x007FFFFF; }

inline constexpr int kSortKeys = 1024;

// Sorts keys [n], a power of two, greatest first; acts as a barrier before and after.
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

// Sorts the first `held` of kSortKeys keys, followed by 0s, up to kCandidates at least.
BH_DEVICE void SortHeld(CandidateKey* keys, int held) {
  const int sorted = held <= kSortKeys / 2 ? kSortKeys / 2 : kSortKeys;
  for (int i = held + int(threadIdx.x); i < sorted; i += int(blockDim.x)) keys[i] = 0;
  __syncthreads();
  SortKeys(keys, sorted);
}

inline constexpr int kSelectAhead = 8;  // reads in flight per thread
inline constexpr int kSelectRound = kSelectThreads * kSelectAhead;

// This thread's key among the keys from `begin` on.
template <typename KeyAt>
BH_DEVICE CandidateKey KeyOrNone(const KeyAt& key_at, int begin, int count) {
  const int at = begin + int(threadIdx.x);
  return at < count ? key_at(at) : 0;
}

template <typename KeyAt>
BH_DEVICE void KeysOfRound(const KeyAt& key_at, int begin, int count,
                           CandidateKey (&keys)[kSelectAhead]) {
  BH_UNROLL
  for (int i = 0; i < kSelectAhead; ++i) {
    keys[i] = KeyOrNone(key_at, begin + i * kSelectThreads, count);
  }
}

// The greatest of this thread's keys among key_at(0) .. key_at(count - 1).
template <typename KeyAt>
BH_DEVICE CandidateKey GreatestOfThread(const KeyAt& key_at, int count) {
  CandidateKey greatest = 0;
  for (int begin = 0; begin < count; begin += kSelectRound) {
    CandidateKey round[kSelectAhead];
    KeysOfRound(key_at, begin, count, round);
    BH_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) greatest = round[i] > greatest ? round[i] : greatest;
  }
  return greatest;
}

// The greatest key, on every thread.
template <typename KeyAt>
BH_DEVICE CandidateKey Greatest(const KeyAt& key_at, int count, CandidateKey* keys) {
  keys[int(threadIdx.x)] = GreatestOfThread(key_at, count);
  for (int half = kSelectThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) >= half) continue;
    const CandidateKey other = keys[int(threadIdx.x) + half];
    if (other > keys[int(threadIdx.x)]) keys[int(threadIdx.x)] = other;
  }
  __syncthreads();
  return keys[0];
}

// A key that at least kCandidates of key_at(0) .. key_at(count - 1) reach: from the sorted maxima
// of the threads. 0 if too few threads have one.
template <typename KeyAt>
BH_DEVICE CandidateKey LowerBound(const KeyAt& key_at, int count, CandidateKey* keys) {
  keys[int(threadIdx.x)] = GreatestOfThread(key_at, count);
  __syncthreads();
  SortKeys(keys, kSelectThreads);
  const CandidateKey bound = keys[kCandidates - 1];
  __syncthreads();
  return bound;
}

// Candidates so far, in shared memory, in any order.
struct HeldKeys {
  CandidateKey* keys;  // [kSortKeys]
  int* next;           // shared; `held` plus keys being added
  int held = 0;
  CandidateKey worst = 0;  // only greater ones are added

  // Adds all better keys of a round at once if there is room, as there usually is.
  BH_DEVICE bool AddRound(const CandidateKey (&round)[kSelectAhead]) {
    int better = 0;
    BH_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) better += round[i] > worst ? 1 : 0;
    int at = better > 0 ? atomicAdd(next, better) : 0;
    __syncthreads();
    const int wanted = *next;
    __syncthreads();
    if (wanted > kSortKeys) {
      SetNext();
      return false;
    }
    BH_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) {
      if (round[i] > worst) keys[at++] = round[i];
    }
    held = wanted;
    return true;
  }

  // Sorts, and keeps only the best, before room may run out. Reads the keys again: a loop that is
  // not unrolled cannot index registers.
  template <typename KeyAt>
  BH_DEVICE void AddOneByOne(const KeyAt& key_at, int begin, int count) {
    BH_NO_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) {
      const CandidateKey key = KeyOrNone(key_at, begin + i * kSelectThreads, count);
      if (held > kSortKeys - kSelectThreads) {
        SortHeld(keys, held);
        held = kCandidates;
        worst = keys[kCandidates - 1];
        SetNext();
      }
      const bool better = key > worst;
      if (better) keys[atomicAdd(next, 1)] = key;
      held += __syncthreads_count(better);
    }
  }

  BH_DEVICE void SetNext() {
    if (int(threadIdx.x) == 0) *next = held;
    __syncthreads();
  }
};

// The greatest kCandidates of key_at(0) .. key_at(count - 1) into keys [kSortKeys], sorted, 0 if
// there are fewer. Uses kSelectThreads threads; `next` is also in shared memory.
template <typename KeyAt>
BH_DEVICE void SelectBest(const KeyAt& key_at, int count, CandidateKey* keys, int* next) {
  HeldKeys all{keys, next};
  const CandidateKey bound = LowerBound(key_at, count, keys);
  all.worst = bound == 0 ? 0 : bound - 1;
  all.SetNext();
  for (int begin = 0; begin < count; begin += kSelectRound) {
    CandidateKey round[kSelectAhead];
    KeysOfRound(key_at, begin, count, round);
    if (!all.AddRound(round)) all.AddOneByOne(key_at, begin, count);
  }
  SortHeld(keys, all.held);
}

}  // namespace bulkhead::cuda
