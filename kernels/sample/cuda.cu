#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/sample/candidates.cuh"
#include "kernels/sample/op.h"

namespace bulkhead {
namespace cuda {

struct SelectCandidatesParameters {
  ConstRows logits;
  int width = 0;
  int32_t first_id = 0;                   // of column 0
  int slice = 0;                          // columns per list
  const TokenSampling* params = nullptr;  // [rows], or null
  Rows out;                               // lists of each row
};

struct SampleParameters {
  ConstRows candidates;  // per rank `rows` rows, with `lists` lists each
  int lists = 0;
  int ranks = 1;
  const TokenSampling* params = nullptr;  // [rows]
  const int32_t* banned = nullptr;
  int32_t* sampled = nullptr;       // [rows] an id, kNotFinite or kNothingToSample
  int32_t* last_sampled = nullptr;  // [slots] an id; 0 if there is none
};

struct FillInSampledParameters {
  const int32_t* last_sampled = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* token_seq = nullptr;
  int32_t* token_ids = nullptr;
  int tokens = 0;
};

namespace {

struct SelectSpace {
  CandidateKey keys[kSortKeys];
  int next;
};

BH_DEVICE void StoreCandidate(float* list, int i, CandidateKey key) {
  list[i] = key == 0 ? 0.0F : LogitOf(key);
  reinterpret_cast<int32_t*>(list + kCandidates)[i] = key == 0 ? -1 : IdOf(key);
}

BH_KERNEL(kSelectThreads) SelectCandidates(SelectCandidatesParameters p) {
  GridDependencySynchronize();
  SelectSpace& space = *reinterpret_cast<SelectSpace*>(SharedMemory());
  const int begin = int(blockIdx.x) * p.slice;
  const int left = p.width - begin;
  const float* const logits = p.logits.data + int(blockIdx.y) * p.logits.stride + begin;
  const int32_t first_id = p.first_id + begin;
  const int count = left < p.slice ? left : p.slice;
  const auto key_at = [=](int at) { return KeyOf(logits[at], first_id + at); };
  float* const out =
      p.out.data + int(blockIdx.y) * p.out.stride + int(blockIdx.x) * 2 * kCandidates;
  if (p.params != nullptr && p.params[int(blockIdx.y)].greedy()) {
    const CandidateKey best = Greatest(key_at, count, space.keys);
    if (int(threadIdx.x) == 0) StoreCandidate(out, 0, best);
    return;
  }
  SelectBest(key_at, count, space.keys, &space.next);
  for (int i = int(threadIdx.x); i < kCandidates; i += kSelectThreads) {
    StoreCandidate(out, i, space.keys[i]);
  }
}

CudaKernelOf<SelectCandidatesParameters> SelectCandidatesKernel() {
  return KernelOf<kSelectThreads>("select_candidates", SelectCandidates);
}

// ---- Sample: each row's token from the lists of all ranks. The order of filters and sums, and so
// every bit, is the same as in runtime/engine/sampler.cc for a row with a top_k.

// Kept candidates in two orders: by place, the likeliest first, and by id.
struct SampleSpace {
  CandidateKey keys[kSortKeys];
  double weight_of_place[kCandidates];
  double weights[kCandidates];  // by id; 0: dropped
  double bucket_sums[kNumBuckets];
  int32_t ids[kCandidates];  // ascending
  int32_t places[kCandidates];
  int next;
  float max;
};

// A sum over ascending ids.
struct ChunkedSum {
  double sum = 0;
  double chunk_sum = 0;
  int32_t chunk = 0;

  BH_DEVICE void Add(int32_t id, double weight) {
    if (id / kChunkIds != chunk) {
      sum += chunk_sum;
      chunk_sum = 0;
      chunk = id / kChunkIds;
    }
    chunk_sum += weight;
  }
  BH_DEVICE double Total() const { return sum + chunk_sum; }
};

BH_DEVICE double SumOfWeights(const SampleSpace& space, int count) {
  ChunkedSum sum;
  for (int i = 0; i < count; ++i) {
    if (space.weights[i] > 0) sum.Add(space.ids[i], space.weights[i]);
  }
  return sum.Total();
}

// The shortest run of the likeliest ids whose share reaches top_p; others get weight 0.
BH_DEVICE void KeepTopP(SampleSpace& space, int count, double top_p) {
  const double target = top_p * SumOfWeights(space, count);
  for (int i = 0; i < count; ++i) {
    if (space.weights[i] > 0) space.bucket_sums[BucketOf(space.weights[i])] += space.weights[i];
  }
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + space.bucket_sums[bucket] < target) {
    mass += space.bucket_sums[bucket++];
  }
  if (bucket == kNumBuckets) return;  // rounding: all are needed
  int last_place = -1;                // last needed one in this bucket
  double in_bucket = 0;
  for (int place = 0; place < count && mass + in_bucket < target; ++place) {
    const double weight = space.weight_of_place[place];
    if (!(weight > 0) || BucketOf(weight) != bucket) continue;
    in_bucket += weight;
    last_place = place;
  }
  for (int i = 0; i < count; ++i) {
    if (!(space.weights[i] > 0)) continue;
    const int own = BucketOf(space.weights[i]);
    const bool in_run = own < bucket || (own == bucket && space.places[i] <= last_place);
    if (!in_run) space.weights[i] = 0;
  }
}

// The first id, in ascending order, at which the running sum exceeds its share.
BH_DEVICE int32_t SampleOne(const SampleSpace& space, int count, double uniform) {
  const double target = uniform * SumOfWeights(space, count);
  ChunkedSum sum;
  int32_t id = 0;
  for (int i = 0; i < count; ++i) {
    if (!(space.weights[i] > 0)) continue;
    id = space.ids[i];
    sum.Add(id, space.weights[i]);
    if (sum.Total() > target) return id;
  }
  return id;  // the product was rounded up to the sum
}

BH_DEVICE bool IsBanned(const SampleParameters& p, const TokenSampling& sampling, int32_t id) {
  const int32_t* const banned = p.banned + sampling.banned_begin;
  for (int i = 0; i < sampling.banned_count; ++i) {
    if (banned[i] == id) return true;
  }
  return false;
}

// Excludes ids that cannot be sampled, applies top_k and min_p, and lays out weights by place and
// by id; returns the number of ids.
BH_DEVICE int WeighCandidates(const SampleParameters& p, const TokenSampling& sampling,
                              SampleSpace& space) {
  const int i = threadIdx.x;
  const CandidateKey key = i < kCandidates ? space.keys[i] : 0;
  const bool stays = CanBeSampled(key) && !IsBanned(p, sampling, IdOf(key));
  if (i < kCandidates && !stays) space.keys[i] = 0;
  const int left = __syncthreads_count(stays);
  SortKeys(space.keys, kCandidates);
  const int count = left < sampling.top_k ? left : sampling.top_k;
  const CandidateKey mine = i < count ? space.keys[i] : 0;
  if (i == 0) space.max = LogitOf(mine);
  __syncthreads();
  if (i < kCandidates) {
    const double min_weight = sampling.min_p > kNoWeight ? sampling.min_p : kNoWeight;
    const double weight =
        mine == 0 ? 0.0 : WeightOf(LogitOf(mine), space.max, sampling.per_temperature);
    space.weight_of_place[i] = weight >= min_weight ? weight : 0.0;
    // The low half of a key is greater for a lower id.
    space.keys[i] = mine == 0 ? 0 : mine << 32 | static_cast<uint32_t>(i);
  }
  __syncthreads();
  SortKeys(space.keys, kCandidates);
  if (i < count) {
    const auto by_id = space.keys[i];
    space.ids[i] = IdOf(by_id >> 32);
    space.places[i] = static_cast<int32_t>(by_id & (kCandidates - 1));
    space.weights[i] = space.weight_of_place[space.places[i]];
  }
  for (int b = i; b < kNumBuckets; b += int(blockDim.x)) space.bucket_sums[b] = 0;
  __syncthreads();
  return count;
}

BH_DEVICE void StoreSampled(const SampleParameters& p, int slot, int32_t id) {
  p.sampled[int(blockIdx.x)] = id;
  p.last_sampled[slot] = id < 0 ? 0 : id;
}

BH_KERNEL(kSelectThreads) Sample(SampleParameters p) {
  GridDependencySynchronize();
  const TokenSampling sampling = p.params[int(blockIdx.x)];
  if (sampling.slot < 0) return;
  SampleSpace& space = *reinterpret_cast<SampleSpace*>(SharedMemory());
  const auto key_at = [=](int at) -> CandidateKey {
    const int list = at / kCandidates;
    const int row = list / p.lists * int(gridDim.x) + int(blockIdx.x);
    const float* const logit = p.candidates.data + row * p.candidates.stride +
                               list % p.lists * 2 * kCandidates + at % kCandidates;
    const int32_t id = *reinterpret_cast<const int32_t*>(logit + kCandidates);
    return id < 0 ? 0 : KeyOf(*logit, id);
  };
  if (sampling.greedy()) {
    // The first of each list is its greatest.
    const CandidateKey best = Greatest([=](int list) { return key_at(list * kCandidates); },
                                       p.ranks * p.lists, space.keys);
    if (int(threadIdx.x) != 0) return;
    const int32_t id = CanBeSampled(best) ? IdOf(best) : kNothingToSample;
    return StoreSampled(p, sampling.slot, IsFinite(best) ? id : kNotFinite);
  }
  SelectBest(key_at, p.ranks * p.lists * kCandidates, space.keys, &space.next);
  const bool finite = IsFinite(space.keys[0]);
  __syncthreads();
  const int count = WeighCandidates(p, sampling, space);
  if (int(threadIdx.x) != 0) return;
  int32_t id = kNotFinite;
  if (finite && count == 0) id = kNothingToSample;
  if (finite && count > 0) {
    if (sampling.top_p < 1) KeepTopP(space, count, sampling.top_p);
    id = SampleOne(space, count, sampling.uniform);
  }
  StoreSampled(p, sampling.slot, id);
}

CudaKernelOf<SampleParameters> SampleKernel() { return KernelOf<kSelectThreads>("sample", Sample); }

BH_KERNEL(kRowThreads) FillInSampled(FillInSampledParameters p) {
  GridDependencySynchronize();
  const int token = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  if (token >= p.tokens || p.token_ids[token] >= 0) return;
  p.token_ids[token] = p.last_sampled[p.seq_slot[p.token_seq[token]]];
}

CudaKernelOf<FillInSampledParameters> FillInSampledKernel() {
  return KernelOf<kRowThreads>("fill_in_sampled", FillInSampled);
}

const KernelRegistration kRegistered(SelectCandidatesKernel(), SampleKernel(),
                                     FillInSampledKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SelectCandidates(ConstMatrixView logits, int64_t first_id,
                                   const TokenSampling* params, MatrixView lists) {
  BH_CHECK(lists.rows() == logits.rows() && lists.cols() % kCandidateCols == 0);
  const int64_t slices = lists.cols() / kCandidateCols;
  Enqueue(driver_, cuda::SelectCandidatesKernel(),
          {.grid = {static_cast<int>(slices), static_cast<int>(lists.rows()), 1},
           .block = {cuda::kSelectThreads, 1, 1},
           .shared_bytes = sizeof(cuda::SelectSpace)},
          {{logits.F32(), logits.row_stride()},
           static_cast<int>(logits.cols()),
           static_cast<int32_t>(first_id),
           cuda::NumBlocks(logits.cols(), slices),
           params,
           {lists.F32(), lists.row_stride()}});
}

void CudaBackend::Sample(ConstMatrixView lists, int ranks, const TokenSampling* params,
                         const int32_t* banned, int32_t* sampled, int32_t* last_sampled) {
  BH_CHECK(lists.cols() % kCandidateCols == 0 && lists.rows() % ranks == 0);
  Enqueue(driver_, cuda::SampleKernel(),
          {.grid = {static_cast<int>(lists.rows() / ranks), 1, 1},
           .block = {cuda::kSelectThreads, 1, 1},
           .shared_bytes = sizeof(cuda::SampleSpace)},
          {{lists.F32(), lists.row_stride()},
           static_cast<int>(lists.cols() / kCandidateCols),
           ranks,
           params,
           banned,
           sampled,
           last_sampled});
}

void CudaBackend::FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                                int32_t* token_ids) {
  const int blocks = (index.num_tokens + cuda::kRowThreads - 1) / cuda::kRowThreads;
  Enqueue(driver_, cuda::FillInSampledKernel(),
          {.grid = {blocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}},
          {last_sampled, index.seq_slot, index.token_seq, token_ids, index.num_tokens});
}

}  // namespace bulkhead
