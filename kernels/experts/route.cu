#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/experts/cuda_kernels.h"
#include "kernels/experts/route.h"
#include "kernels/sample/candidates.cuh"

namespace bulkhead::cuda {
namespace {

// For one warp, in shared memory.
struct RouteSpace {
  CandidateKey* experts;  // [E] keys of the choice; 0: cannot be chosen
  CandidateKey* groups;   // [num_groups]
  int32_t* chosen;        // [k]
  float* scores;          // [k] of the chosen ones
};

BH_DEVICE CandidateKey MaxInWarp(CandidateKey key) {
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const auto high = static_cast<uint32_t>(
        __shfl_xor_sync(kFullMask, static_cast<int>(static_cast<uint32_t>(key >> 32)), mask));
    const auto low = static_cast<uint32_t>(
        __shfl_xor_sync(kFullMask, static_cast<int>(static_cast<uint32_t>(key)), mask));
    const CandidateKey other = CandidateKey{high} << 32 | low;
    if (other > key) key = other;
  }
  return key;
}

// The greatest key below `bound`, which initially exceeds every number's key.
BH_DEVICE CandidateKey GreatestBelow(const CandidateKey* keys, int begin, int end, int step,
                                     CandidateKey bound) {
  CandidateKey best = 0;
  for (int i = begin; i < end; i += step) {
    if (keys[i] < bound && keys[i] > best) best = keys[i];
  }
  return best;
}
constexpr CandidateKey kNoBound = ~CandidateKey{0};

BH_DEVICE float MaxInWarp(float x) {
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullMask, x, mask));
  }
  return x;
}
BH_DEVICE float SumInWarp(float x) {
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kFullMask, x, mask);
  return x;
}

struct Scoring {
  RouterScoring scoring;
  float most;  // largest logit, for a softmax

  BH_DEVICE float Of(float logit) const {
    if (scoring == RouterScoring::kSoftmax) return expf(logit - most);
    const float e = expf(-fabsf(logit));
    return (logit < 0.0F ? e : 1.0F) / (1.0F + e);
  }
};

// Experts outside the best groups get the key 0.
BH_DEVICE void KeepBestGroups(const RouteParameters& p, const RouteSpace& space) {
  const int size = p.num_experts / p.options.num_groups;
  const int best_of_group =
      p.options.experts_per_group_score < size ? p.options.experts_per_group_score : size;
  for (int group = LaneIndex(); group < p.options.num_groups; group += kWarp) {
    CandidateKey last = kNoBound;
    float score = 0.0F;
    for (int i = 0; i < best_of_group; ++i) {
      last = GreatestBelow(space.experts, group * size, (group + 1) * size, 1, last);
      score = i == 0 ? LogitOf(last) : score + LogitOf(last);
    }
    space.groups[group] = KeyOf(score == score ? score : 0.0F, group);
  }
  __syncwarp();
  CandidateKey last = kNoBound;
  for (int i = 0; i < p.options.num_chosen_groups; ++i) {
    last = MaxInWarp(GreatestBelow(space.groups, LaneIndex(), p.options.num_groups, kWarp, last));
  }
  for (int e = LaneIndex(); e < p.num_experts; e += kWarp) {
    if (space.groups[e / size] < last) space.experts[e] = 0;
  }
  __syncwarp();
}

// The k greatest of space.experts, ascending by id, into space.chosen.
BH_DEVICE void ChooseExperts(const RouteParameters& p, const RouteSpace& space) {
  const int k = p.experts_per_token;
  auto* const unordered = reinterpret_cast<int32_t*>(space.scores);
  CandidateKey last = kNoBound;
  for (int i = 0; i < k; ++i) {
    last = MaxInWarp(GreatestBelow(space.experts, LaneIndex(), p.num_experts, kWarp, last));
    if (LaneIndex() == 0) unordered[i] = IdOf(last);
  }
  __syncwarp();
  for (int i = LaneIndex(); i < k; i += kWarp) {
    int rank = 0;
    for (int j = 0; j < k; ++j) rank += unordered[j] < unordered[i] ? 1 : 0;
    space.chosen[rank] = unordered[i];
  }
  __syncwarp();
}

BH_DEVICE bool PadsStep(const RouteParameters& p, int token) {
  return p.padding_slot >= 0 && p.seq_slot[p.token_seq[token]] == p.padding_slot;
}

BH_DEVICE void RouteToken(const RouteParameters& p, int token, const RouteSpace& space) {
  const float* const logits = p.logits.data + (PadsStep(p, token) ? 0 : token) * p.logits.stride;
  const int k = p.experts_per_token;
  const bool softmax = p.options.scoring == RouterScoring::kSoftmax;
  Scoring scoring{p.options.scoring, -HUGE_VALF};
  float sum = 1.0F;
  if (softmax) {
    for (int e = LaneIndex(); e < p.num_experts; e += kWarp) {
      scoring.most = fmaxf(scoring.most, logits[e]);
    }
    scoring.most = MaxInWarp(scoring.most);
    sum = 0.0F;
    for (int e = LaneIndex(); e < p.num_experts; e += kWarp) sum += scoring.Of(logits[e]);
    sum = SumInWarp(sum);
  }
  float nans = 0.0F;
  for (int e = LaneIndex(); e < p.num_experts; e += kWarp) {
    const float choice = p.bias == nullptr ? logits[e] : scoring.Of(logits[e]) / sum + p.bias[e];
    const bool is_nan = choice != choice;
    if (is_nan) nans = 1.0F;
    space.experts[e] = KeyOf(is_nan ? 0.0F : choice, e);
  }
  const bool has_nan = MaxInWarp(nans) > 0.0F;
  __syncwarp();
  if (p.options.num_groups > 1) KeepBestGroups(p, space);
  ChooseExperts(p, space);
  for (int i = LaneIndex(); i < k; i += kWarp)
    space.scores[i] = scoring.Of(logits[space.chosen[i]]);
  __syncwarp();
  if (p.options.normalizes) {
    sum = 0.0F;
    for (int i = 0; i < k; ++i) sum += space.scores[i];
    sum += kMinScoreSum;
  }
  if (has_nan) sum = __uint_as_float(0x7FC00000U);  // so that the logits show it
  for (int i = LaneIndex(); i < k; i += kWarp) {
    const int expert = space.chosen[i];
    const float scale = p.scales == nullptr ? p.options.scale : p.options.scale * p.scales[expert];
    p.experts[token * k + i] = expert;
    p.weights[token * k + i] = space.scores[i] / sum * scale;
  }
}

int64_t WarpBytes(const RouteParameters& p) {
  return (p.num_experts + p.options.num_groups) * int64_t{sizeof(CandidateKey)} +
         p.experts_per_token * int64_t{8};
}

BH_KERNEL(kRouteWarps* kWarp) Route(RouteParameters p) {
  GridDependencySynchronize();
  const int token = int(blockIdx.x) * kRouteWarps + WarpIndex();
  if (token >= p.tokens) return;
  auto* const all = reinterpret_cast<CandidateKey*>(SharedMemory());
  RouteSpace space;
  space.experts = all + WarpIndex() * (p.num_experts + p.options.num_groups + p.experts_per_token);
  space.groups = space.experts + p.num_experts;
  space.chosen = reinterpret_cast<int32_t*>(space.groups + p.options.num_groups);
  space.scores = reinterpret_cast<float*>(space.chosen + p.experts_per_token);
  RouteToken(p, token, space);
}

// ---- SortPairs

constexpr int kSortThreads = kSortWarps * kWarp;
constexpr int kScanned = kMaxExperts / kSortThreads;  // numbers per thread

// Inclusive prefix sum; acts as a barrier before and after.
BH_DEVICE void SumUp(int* values, int count) {
  for (int apart = 1; apart < count; apart *= 2) {
    int before[kScanned];
    BH_UNROLL
    for (int i = 0; i < kScanned; ++i) {
      const int at = int(threadIdx.x) + i * kSortThreads;
      before[i] = at < count && at >= apart ? values[at - apart] : 0;
    }
    __syncthreads();
    BH_UNROLL
    for (int i = 0; i < kScanned; ++i) {
      const int at = int(threadIdx.x) + i * kSortThreads;
      if (at < count) values[at] += before[i];
    }
    __syncthreads();
  }
}

// A warp stores an expert's pairs one after the other, in their order.
BH_DEVICE void PutPairs(const SortPairsParameters& p, int expert, int at) {
  constexpr int kAhead = 4;
  for (int first = 0; first < p.pairs; first += kAhead * kWarp) {
    int experts[kAhead];
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int pair = first + i * kWarp + LaneIndex();
      experts[i] = pair < p.pairs ? p.experts[pair] : -1;
    }
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const unsigned lanes = __ballot_sync(kFullMask, experts[i] == expert);
      const int pair = first + i * kWarp + LaneIndex();
      if (experts[i] == expert) {
        const int to = at + __popc(lanes & ((1U << LaneIndex()) - 1));
        p.pair_token[to] = pair / p.experts_per_token;
        p.pair_weight[to] = p.weights[pair];
        p.pair_at[pair] = to;
      }
      at += __popc(lanes);
    }
  }
}

// Every block counts all pairs; its warps store the pairs of their experts.
BH_KERNEL(kSortThreads) SortPairs(SortPairsParameters p) {
  GridDependencySynchronize();
  auto* const ends = reinterpret_cast<int*>(SharedMemory());  // of each expert's pairs
  int* const tile_ends = ends + kMaxExperts;
  const int thread = int(threadIdx.x);
  for (int e = thread; e < p.num_experts; e += kSortThreads) ends[e] = 0;
  __syncthreads();
  for (int i = thread; i < p.pairs; i += kSortThreads) atomicAdd(&ends[p.experts[i]], 1);
  __syncthreads();
  for (int e = thread; e < p.num_experts; e += kSortThreads) {
    tile_ends[e] = (ends[e] + p.tile_pairs - 1) / p.tile_pairs;
  }
  __syncthreads();
  SumUp(ends, p.num_experts);
  SumUp(tile_ends, p.num_experts);
  if (int(blockIdx.x) == 0) {
    for (int e = thread; e < p.num_experts; e += kSortThreads) p.expert_begin[e + 1] = ends[e];
    if (thread == 0) p.expert_begin[0] = 0;
    const int used = tile_ends[p.num_experts - 1];
    for (int i = used + thread; i < p.max_tiles; i += kSortThreads)
      p.tiles[i] = ExpertTile{-1, 0, 0};
  }
  const int expert = int(blockIdx.x) * kSortWarps + WarpIndex();
  if (expert >= p.num_experts) return;
  const int begin = expert == 0 ? 0 : ends[expert - 1];
  const int end = ends[expert];
  if (begin == end) return;
  const int first_tile = expert == 0 ? 0 : tile_ends[expert - 1];
  for (int i = LaneIndex(); i < tile_ends[expert] - first_tile; i += kWarp) {
    const int from = begin + i * p.tile_pairs;
    const int to = from + p.tile_pairs < end ? from + p.tile_pairs : end;
    p.tiles[first_tile + i] = ExpertTile{expert, from, to};
  }
  PutPairs(p, expert, begin);
}

}  // namespace

int64_t RouteSharedBytes(const RouteParameters& p) { return kRouteWarps * WarpBytes(p); }
CudaKernelOf<RouteParameters> RouteKernel() {
  return KernelOf<kRouteWarps * kWarp>("route", Route);
}
CudaKernelOf<SortPairsParameters> SortPairsKernel() {
  return KernelOf<kSortThreads>("sort_pairs", SortPairs);
}

const KernelRegistration kRegistered(RouteKernel(), SortPairsKernel());

}  // namespace bulkhead::cuda
