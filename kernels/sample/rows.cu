// Samples tokens from whole rows of logits, with any number of kept ids.
#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/sample/op.h"
#include "kernels/sample/rows.cuh"

namespace bulkhead {
namespace cuda {
namespace {

inline constexpr int kChunkThreads = 128;

struct MaximaSpace {
  float of_warp[kWarp];
};

// Also bans ids: a banned logit must be finite as well.
BH_KERNEL(kChunkThreads) FindRowMaxima(SampleRowsParameters p) {
  GridDependencySynchronize();
  const int row = int(blockIdx.y);
  const TokenSampling sampling = p.params[row];
  if (sampling.slot < 0) return;
  MaximaSpace& space = *reinterpret_cast<MaximaSpace*>(SharedMemory());
  const int chunk = int(blockIdx.x);
  const int begin = chunk * kChunkIds;
  const int ids = IdsOfChunk(p, chunk);
  float* const logits = p.logits.data + row * p.logits.stride + begin;
  bool finite = true;
  for (int i = int(threadIdx.x); i < ids; i += kChunkThreads) {
    finite = finite && IsFinite(KeyOf(logits[i], 0));
  }
  const bool all_finite = __syncthreads_count(finite) == kChunkThreads;
  const int32_t* const banned = p.banned + sampling.banned_begin;
  for (int i = int(threadIdx.x); i < sampling.banned_count; i += kChunkThreads) {
    const int at = banned[i] - begin;
    const bool again = i > 0 && banned[i - 1] == banned[i];  // they are sorted
    if (at >= 0 && at < ids && !again) logits[at] = -INFINITY;
  }
  __syncthreads();
  float max = all_finite ? -INFINITY : INFINITY;
  for (int i = int(threadIdx.x); i < ids && all_finite; i += kChunkThreads) {
    max = fmaxf(max, logits[i]);
  }
  max = BlockMax(max, space.of_warp);
  if (int(threadIdx.x) == 0) StateOf(p, row).maxima[chunk] = max;
}

struct ChunkSpace {
  double weights[kChunkIds];
  float of_warp[kWarp];
};

BH_DEVICE void WeighChunk(const SampleRowsParameters& p, int row, int chunk, const Weigher& weigh,
                          double* weights) {
  const int begin = chunk * kChunkIds;
  const float* const logits = LogitsOf(p, row) + begin;
  const int ids = IdsOfChunk(p, chunk);
  for (int i = int(threadIdx.x); i < ids; i += int(blockDim.x)) {
    weights[i] = weigh(logits[i], begin + i);
  }
  __syncthreads();
}

BH_KERNEL(kChunkThreads) SumRowChunks(SampleRowsParameters p) {
  GridDependencySynchronize();
  const int row = int(blockIdx.y);
  const TokenSampling sampling = p.params[row];
  if (sampling.slot < 0 || (p.cut && !(sampling.top_p < 1))) return;
  ChunkSpace& space = *reinterpret_cast<ChunkSpace*>(SharedMemory());
  const RowState state = StateOf(p, row);
  const float max = RowMax(state, p.chunks, space.of_warp);
  if (!HasToken(max)) return;
  Weigher weigh(max, sampling);
  if (p.cut) weigh.cut = *state.cut;
  const int chunk = int(blockIdx.x);
  WeighChunk(p, row, chunk, weigh, space.weights);
  if (int(threadIdx.x) != 0) return;
  const int ids = IdsOfChunk(p, chunk);
  double sum = 0;
  for (int i = 0; i < ids; ++i) sum += space.weights[i];
  state.sums[chunk] = sum;
}

// ---- the token

struct DrawSpace {
  double weights[kChunkIds];
  float of_warp[kWarp];
  int chunk;
};

// The first id at which the sum of weights, in order, exceeds its share: it is in the first chunk
// at whose end the sum does, since sums do not decrease.
BH_KERNEL(kChunkThreads) DrawFromRows(SampleRowsParameters p) {
  GridDependencySynchronize();
  const int row = int(blockIdx.x);
  const TokenSampling sampling = p.params[row];
  if (sampling.slot < 0) return;
  DrawSpace& space = *reinterpret_cast<DrawSpace*>(SharedMemory());
  const RowState state = StateOf(p, row);
  const float max = RowMax(state, p.chunks, space.of_warp);
  const bool first = int(threadIdx.x) == 0;
  if (!HasToken(max)) {
    if (first) p.sampled[row] = max > 0 ? kNotFinite : kNothingToSample;
    if (first) p.last_sampled[sampling.slot] = 0;
    return;
  }
  Weigher weigh(max, sampling);
  if (sampling.top_p < 1) weigh.cut = *state.cut;
  double* const sums = reinterpret_cast<double*>(&space + 1);
  const double target = sampling.uniform * Total(state, p.chunks, sums);
  double before = 0;  // sum before the chunk
  if (first) {
    int chunk = 0;
    while (chunk < p.chunks && !(before + sums[chunk] > target)) before += sums[chunk++];
    if (chunk ==
        p.chunks) {  // the product was rounded up to the sum: take the last id with a weight
      while (!(sums[--chunk] > 0)) continue;
      before = 0;
    }
    space.chunk = chunk;
  }
  __syncthreads();
  const int chunk = space.chunk;
  WeighChunk(p, row, chunk, weigh, space.weights);
  if (!first) return;
  int32_t id = 0;
  double sum = 0;
  const int ids = IdsOfChunk(p, chunk);
  for (int i = 0; i < ids && !(before + sum > target); ++i) {
    if (!(space.weights[i] > 0)) continue;
    id = chunk * kChunkIds + i;
    sum += space.weights[i];
  }
  p.sampled[row] = id;
  p.last_sampled[sampling.slot] = id;
}

CudaKernelOf<SampleRowsParameters> FindRowMaximaKernel() {
  return KernelOf<kChunkThreads>("sample_row_maxima", FindRowMaxima);
}
CudaKernelOf<SampleRowsParameters> SumRowChunksKernel() {
  return KernelOf<kChunkThreads>("sample_row_chunks", SumRowChunks);
}
CudaKernelOf<SampleRowsParameters> DrawFromRowsKernel() {
  return KernelOf<kChunkThreads>("sample_row_draw", DrawFromRows);
}

const KernelRegistration kRegistered(FindRowMaximaKernel(), SumRowChunksKernel(),
                                     DrawFromRowsKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SampleRows(MatrixView logits, const TokenSampling* params, const int32_t* banned,
                             bool cuts, MatrixView scratch, int32_t* sampled,
                             int32_t* last_sampled) {
  BH_CHECK(scratch.rows() >= logits.rows() && scratch.cols() == RowScratchCols(logits.cols()));
  const int chunks = cuda::NumBlocks(logits.cols(), kChunkIds);
  const int rows = static_cast<int>(logits.rows());
  cuda::SampleRowsParameters p{cuda::RowsOf(logits),
                               static_cast<int>(logits.cols()),
                               chunks,
                               params,
                               banned,
                               cuda::RowsOf(scratch),
                               sampled,
                               last_sampled};
  const int64_t draw_bytes =
      static_cast<int64_t>(sizeof(cuda::DrawSpace)) + chunks * static_cast<int64_t>(sizeof(double));
  const LaunchShape of_chunks = {.grid = {chunks, rows, 1}, .block = {cuda::kChunkThreads, 1, 1}};
  LaunchShape maxima = of_chunks;
  maxima.shared_bytes = sizeof(cuda::MaximaSpace);
  LaunchShape sums = of_chunks;
  sums.shared_bytes = sizeof(cuda::ChunkSpace);
  Enqueue(driver_, cuda::FindRowMaximaKernel(), maxima, p);
  Enqueue(driver_, cuda::SumRowChunksKernel(), sums, p);
  if (cuts) {
    Enqueue(driver_, cuda::CutRowsKernel(),
            {.grid = {rows, 1, 1},
             .block = {cuda::kSelectThreads, 1, 1},
             .shared_bytes = cuda::CutBytes(chunks)},
            p);
    p.cut = true;
    Enqueue(driver_, cuda::SumRowChunksKernel(), sums, p);
  }
  Enqueue(driver_, cuda::DrawFromRowsKernel(),
          {.grid = {rows, 1, 1}, .block = {cuda::kChunkThreads, 1, 1}, .shared_bytes = draw_bytes},
          p);
}

}  // namespace bulkhead
