// The cut of top-p over whole rows: the shortest run of the likeliest ids whose share reaches it.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/sample/rows.cuh"

namespace bulkhead::cuda {
namespace {

using Share = unsigned long long;
inline constexpr double kShares = 0x1p40;  // per weight of 1; 2^23 weights sum to less than 2^64

inline constexpr int kSelectWarps = kSelectThreads / kWarp;
inline constexpr int kBucketsOfThread = (kNumBuckets + kSelectThreads - 1) / kSelectThreads;

struct CutSpace {
  CandidateKey keys[kSortKeys];
  double bucket_sums[kNumBuckets];
  Share shares[kNumBuckets];
  double listed[kSelectThreads];
  int bucket_of_listed[kSelectThreads];
  int listed_of_warp[kSelectWarps];
  float of_warp[kWarp];
  int next;
  int bucket;
  bool goes_on;
  double target;
};

// A bucket at or after the one where the target is reached. Integer sums do not depend on the
// order; they are less than the sums of the weights, and an ordered sum of weights is within 2^-30
// (relative) of the true one.
BH_DEVICE int LastBucket(const SampleRowsParameters& p, int row, const Weigher& weigh,
                         CutSpace& space) {
  for (int b = int(threadIdx.x); b < kNumBuckets; b += kSelectThreads) space.shares[b] = 0;
  __syncthreads();
  const float* const logits = LogitsOf(p, row);
  for (int begin = int(threadIdx.x); begin < p.vocab; begin += kSelectRound) {
    float ahead[kSelectAhead];
    BH_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) {
      const int id = begin + i * kSelectThreads;
      ahead[i] = id < p.vocab ? logits[id] : -INFINITY;
    }
    BH_UNROLL
    for (int i = 0; i < kSelectAhead; ++i) {
      const double weight = weigh(ahead[i], begin + i * kSelectThreads);
      const auto share = static_cast<Share>(weight * kShares);
      if (share > 0) atomicAdd(&space.shares[BucketOf(weight)], share);
    }
  }
  __syncthreads();
  if (int(threadIdx.x) == 0) {
    const double enough = space.target * kShares * (1 + 0x1p-30);
    Share mass = space.shares[0];
    int bucket = 0;
    while (bucket < kNumBuckets - 1 && static_cast<double>(mass) < enough) {
      mass += space.shares[++bucket];
    }
    space.bucket = bucket;
  }
  __syncthreads();
  return space.bucket;
}

// Sums the weights of each bucket up to `last` in the order of ids. A thread has every
// kSelectThreads-th bucket, and adds its own entries of a list of the block's next ids.
BH_DEVICE void SumBuckets(const SampleRowsParameters& p, int row, const Weigher& weigh, int last,
                          CutSpace& space) {
  const float* const logits = LogitsOf(p, row);
  const int thread = int(threadIdx.x);
  double sums[kBucketsOfThread] = {};
  float next = thread < p.vocab ? logits[thread] : -INFINITY;
  for (int begin = 0; begin < p.vocab; begin += kSelectThreads) {
    const int id = begin + thread;
    const float logit = next;
    next = id + kSelectThreads < p.vocab ? logits[id + kSelectThreads] : -INFINITY;
    const double weight = weigh(logit, id);
    const int bucket = BucketOf(weight);
    const bool is_listed = weight > 0 && bucket <= last;
    const unsigned lanes = __ballot_sync(kFullMask, is_listed ? 1 : 0);
    if (LaneIndex() == 0) space.listed_of_warp[WarpIndex()] = __popc(lanes);
    __syncthreads();
    int at = __popc(lanes & ((1U << LaneIndex()) - 1));
    int listed = 0;
    for (int warp = 0; warp < kSelectWarps; ++warp) {
      if (warp < WarpIndex()) at += space.listed_of_warp[warp];
      listed += space.listed_of_warp[warp];
    }
    if (is_listed) {
      space.listed[at] = weight;
      space.bucket_of_listed[at] = bucket;
    }
    __syncthreads();
    for (int i = 0; i < listed; ++i) {
      BH_UNROLL
      for (int own = 0; own < kBucketsOfThread; ++own) {
        if (space.bucket_of_listed[i] == thread + own * kSelectThreads)
          sums[own] += space.listed[i];
      }
    }
  }
  BH_UNROLL
  for (int own = 0; own < kBucketsOfThread; ++own) {
    const int bucket = thread + own * kSelectThreads;
    if (bucket <= last) space.bucket_sums[bucket] = sums[own];
  }
  __syncthreads();
}

// The key of the least likely id of `bucket` that is needed for the sum, starting from `mass`, to
// reach the target; valid on thread 0.
BH_DEVICE CandidateKey CutBucket(const SampleRowsParameters& p, int row, Weigher weigh, int bucket,
                                 double mass, CutSpace& space) {
  weigh.SkipBehind(bucket);
  const float* const logits = LogitsOf(p, row);
  CandidateKey below = ~CandidateKey{0};
  CandidateKey last = 0;
  double in_bucket = 0;
  bool goes_on = true;
  while (goes_on) {
    const auto key_at = [=](int id) -> CandidateKey {
      const double weight = weigh(logits[id], id);
      if (!(weight > 0) || BucketOf(weight) != bucket) return 0;
      const CandidateKey key = KeyOf(logits[id], id);
      return key < below ? key : 0;
    };
    SelectBest(key_at, p.vocab, space.keys, &space.next);
    if (int(threadIdx.x) == 0) {
      int i = 0;
      for (; i < kCandidates && space.keys[i] != 0 && mass + in_bucket < space.target; ++i) {
        last = space.keys[i];
        in_bucket += weigh(LogitOf(last), IdOf(last));
      }
      space.goes_on = i == kCandidates && mass + in_bucket < space.target;
    }
    __syncthreads();
    goes_on = space.goes_on;
    below = space.keys[kCandidates - 1];
    __syncthreads();
  }
  return last;
}

BH_KERNEL(kSelectThreads) CutRows(SampleRowsParameters p) {
  GridDependencySynchronize();
  const int row = int(blockIdx.x);
  const TokenSampling sampling = p.params[row];
  if (sampling.slot < 0 || !(sampling.top_p < 1)) return;
  CutSpace& space = *reinterpret_cast<CutSpace*>(SharedMemory());
  const RowState state = StateOf(p, row);
  const float max = RowMax(state, p.chunks, space.of_warp);
  if (!HasToken(max)) return;
  Weigher weigh(max, sampling);
  const double total = Total(state, p.chunks, reinterpret_cast<double*>(&space + 1));
  if (int(threadIdx.x) == 0) space.target = sampling.top_p * total;
  const int last = LastBucket(p, row, weigh, space);
  weigh.SkipBehind(last);
  SumBuckets(p, row, weigh, last, space);
  double mass = 0;
  int bucket = 0;
  while (bucket <= last && mass + space.bucket_sums[bucket] < space.target) {
    mass += space.bucket_sums[bucket++];
  }
  RowCut cut;
  if (bucket <= last) {  // otherwise rounding: all are needed
    cut.key = CutBucket(p, row, weigh, bucket, mass, space);
    cut.bucket = bucket;
  }
  if (int(threadIdx.x) == 0) *state.cut = cut;
}

}  // namespace

CudaKernelOf<SampleRowsParameters> CutRowsKernel() {
  return KernelOf<kSelectThreads>("sample_row_cut", CutRows);
}
int64_t CutBytes(int chunks) {
  return static_cast<int64_t>(sizeof(CutSpace)) + chunks * static_cast<int64_t>(sizeof(double));
}

namespace {

const KernelRegistration kRegistered(CutRowsKernel());

}  // namespace
}  // namespace bulkhead::cuda
