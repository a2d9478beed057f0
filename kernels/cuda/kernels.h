// The kernels of the CUDA backend: what each takes and how it is launched. One .cu file holds each
// kernel, written in the words of intrinsics.h; host code sees parameters and CudaKernels alone.
//
// Pointers are device memory. Letters as in memory/matrix.h. Activations are f32 in rows that lie
// `stride` elements apart. There are no atomics on floats: the same step gives the same bits.
#pragma once

#include <stdint.h>

#include "base/token_sampling.h"
#include "memory/cuda_kernel.h"
#include "memory/kv_format.h"
#include "memory/weight_format.h"

namespace bulkhead::cuda {

struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
};
struct ConstRows {
  const float* data = nullptr;
  int64_t stride = 0;
};
// Rows that products alone read may be written in the numbers that products take.
enum class Numbers : int32_t { kF32, kBF16, kF16 };
struct OutRows {
  void* data = nullptr;
  int64_t stride = 0;
  Numbers numbers = Numbers::kF32;
};

// ---- one block of kRowThreads for each row; grid {T}. Some say that they have more blocks or
// threads: in a step of one token a row's block runs alone.
inline constexpr int kRowThreads = 256;

// A packed weight (linear_layout.h).
struct PackedWeight {
  const unsigned char* numbers = nullptr;
  // Quantised formats alone:
  const uint32_t* scaling = nullptr;    // [cells][rows, filled up]: f16 scale, then f16 zero
  const int32_t* chunk_cell = nullptr;  // [depth / 32] the cell of each chunk, ascending
  // [depth] which input is there; -1: none. Null: the inputs in their order, then none.
  const int32_t* input_at = nullptr;
  int rows = 0;    // N
  int inputs = 0;  // K
  int depth = 0;
};

struct EmbedParameters {
  const int32_t* tokens = nullptr;  // [T]
  PackedWeight table;
  int64_t first_row = 0;
  Rows out;
};
CudaKernelOf<EmbedParameters> EmbedKernel(WeightFormat format);  // not f32

// Of x, or of x + addend (+ bias where there is one), which goes to `added`. kNormThreads.
inline constexpr int kNormThreads = 512;
// `fours`: rows of up to kMostNormedFours, four by four: a multiple of 4 wide and apart, 16-byte
// aligned. Each number is then read once.
inline constexpr int kNormFours = 4;  // of a thread
inline constexpr int kMostNormedFours = kNormFours * kNormThreads * 4;
struct RmsNormParameters {
  ConstRows x;
  ConstRows addend;  // null: none
  const float* bias = nullptr;
  Rows added;                     // may be x
  const float* weight = nullptr;  // [D]
  float epsilon = 0;
  int width = 0;  // D
  OutRows out;
};
CudaKernelOf<RmsNormParameters> RmsNormKernel(bool adds, bool fours);

// grid {T, f / kSwiGluCols}; `fours`: rows a multiple of 4 wide and apart, 16-byte aligned
inline constexpr int kSwiGluCols = 4 * kRowThreads;
struct SwiGluParameters {
  ConstRows gate_up;
  int width = 0;  // f
  OutRows out;
};
CudaKernelOf<SwiGluParameters> SwiGluKernel(bool fours);

// x += addend (+ bias where there is one).
struct AddParameters {
  ConstRows addend;  // stride 0: one row for all
  const float* bias = nullptr;
  int width = 0;
  Rows x;
};
CudaKernelOf<AddParameters> AddKernel();

struct SelectRowsParameters {
  ConstRows x;
  const int32_t* rows = nullptr;
  int width = 0;
  Rows out;
};
CudaKernelOf<SelectRowsParameters> SelectRowsKernel();

struct FillParameters {
  float value = 0;
  int width = 0;
  Rows x;
};
CudaKernelOf<FillParameters> FillKernel();

// out[t][at] = x[t][input_at[at]], or x[t][at] without a map, as bf16 or f16; 0 where there is
// none.
struct GatherInputsParameters {
  ConstRows x;
  const uint16_t* rounded = nullptr;  // instead of x.data, in the numbers of out
  const int32_t* input_at = nullptr;
  int inputs = 0;
  int depth = 0;
  uint16_t* out = nullptr;  // [T][depth]
};
CudaKernelOf<GatherInputsParameters> GatherInputsKernel(bool f16);

// ---- products: out[t][n] = sum over the depth of x[t] weight[n]
struct LinearParameters {
  const uint16_t* x = nullptr;  // [T][depth]: f16 for weights in f16, bf16 for all others
  int tokens = 0;
  PackedWeight weight;
  Rows out;
};
inline constexpr int kLinearThreads = 128;
// For few tokens: grid {rows filled up / 16, T / (8 token_tiles)}; token_tiles 1, 2 or 4.
CudaKernelOf<LinearParameters> LinearKernel(WeightFormat format, int token_tiles);

// For many tokens: grid {rows / kGemmTile, T / kGemmTile}.
inline constexpr int kGemmThreads = 256;
inline constexpr int kGemmTile = 128;
inline constexpr int kGemmSharedBytes = 80 << 10;
CudaKernelOf<LinearParameters> GemmKernel(WeightFormat format);

// out[n - first_row] = row n of a quantised weight in bf16, for products that know no codes. Rows
// from first_row on, a multiple of 16; grid {rows / 16, depth / (64 kUnpackWarps)}.
struct UnpackParameters {
  PackedWeight weight;
  int first_row = 0;
  uint16_t* out = nullptr;  // [rows filled up][depth]
};
inline constexpr int kUnpackWarps = 8;
CudaKernelOf<UnpackParameters> UnpackKernel(WeightFormat format);  // int8 or int4

// ---- heads
struct NormRopeParameters {
  const int32_t* position = nullptr;  // [T]
  const float* q_norm = nullptr;      // [d] or null, and for k
  const float* k_norm = nullptr;
  float epsilon = 0;
  ConstRows rope;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  Rows qkv;
};
inline constexpr int kHeadWarps = 4;                // heads of a block; a warp each
CudaKernelOf<NormRopeParameters> NormRopeKernel();  // grid {T, heads and KV heads / kHeadWarps}

// One layer of the cache, and where a step's tokens are in it (kernels/backend.h, StepIndex).
struct CacheParameters {
  unsigned char* base = nullptr;
  int64_t block_bytes = 0;  // of this layer
  int64_t head_bytes = 0;
  int64_t keys_bytes = 0;
  int block_tokens = 0;  // a power of two
  int block_shift = 0;   // its logarithm
  int head_dim = 0;
  const int32_t* seq_begin = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* position = nullptr;
  const int32_t* token_seq = nullptr;
  const int32_t* block_tables = nullptr;
  int block_table_stride = 0;
};

struct AppendKvParameters {
  CacheParameters cache;
  ConstRows qkv;
  int num_heads = 0;
  int num_kv_heads = 0;
};
// grid {T, 2 KV heads / kHeadWarps}
CudaKernelOf<AppendKvParameters> AppendKvKernel(KvFormat format);

// Causal attention. A block takes up to so many pairs of a token and a query head that share a KV
// head, its columns, and 64 tokens of the cache at a time. Two kernels share the work:
//   sequences of one token   grid {any, KV heads x head_tiles}: blocks take the items in turn, each
//                            a split of SplitTokens of the cache, its sums to `parts`;
//                            CombineKernel adds
//   sequences of more        grid {KV heads x head_tiles, tiles: T / tile_tokens, in layers of
//                            kTilesOfLayer}: whole, to `out`; the last tokens of all heads
//                            begin, so that no long block begins late
inline constexpr int kLeastSplitTokens = 256;
inline constexpr int kMostSplits = 32;  // of a context, so that their sums take a fixed room
// Tokens of a split of a context of `tokens`: from the context alone, so that a row's bits do not
// depend on the others.
constexpr int SplitTokens(int tokens) {
  int split_tokens = kLeastSplitTokens;
  while (tokens > split_tokens * kMostSplits) split_tokens *= 2;
  return split_tokens;
}
struct AttendItem {
  int32_t seq = 0;
  int32_t split = 0;  // which split
};
struct AttendParameters {
  CacheParameters cache;
  ConstRows qkv;
  const int32_t* head_begin = nullptr;  // [KV heads + 1] first query head of each KV head
  int num_tokens = 0;
  int num_heads = 0;
  int head_tiles = 0;     // blocks for the query heads of a KV head
  int heads_of_tile = 0;  // at most
  int tile_tokens = 0;
  int tiles = 0;
  int splits = 0;  // of any context at most
  const int32_t* num_items = nullptr;
  const AttendItem* items = nullptr;
  int window = 0;
  float scale = 0;
  // [S][splits][h][d]: sums of p v, and [S][splits][h][2]: {the greatest score in base 2, sum of p}
  float* parts = nullptr;
  float* part_sums = nullptr;
  OutRows out;
};
inline constexpr float kMaskedScore = -1e30F;  // a masked score
inline constexpr int kAttendThreads = 128;
inline constexpr int kTilesOfLayer = 1 << 15;  // a grid has room for no more in y
inline constexpr int kAttendWarps = kAttendThreads / 32;
inline constexpr int kAttendTokens = 64;
struct AttendLaunch {
  CudaKernelOf<AttendParameters> kernel;
  int64_t shared_bytes = 0;
  int blocks_of_sm = 1;  // for which registers are enough
};
// For keys and values in each format. head_dim: a multiple of 8 up to 256. `split`: the first of
// the two, whose blocks have 8 column_tiles columns, 1 or 2 (beyond 128 dims 1); those of the
// second have four times as many, up to 128 dims of WholeColumnTiles, beyond of one.
constexpr int WholeColumnTiles(KvFormat format) { return IsQuantized(format) ? 2 : 4; }
AttendLaunch AttendBF16Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendF16Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendInt4Kernel(int head_dim, int column_tiles, bool split);

CudaKernelOf<AttendParameters> CombineKernel();  // grid {S, h / kHeadWarps}

// ---- drawing tokens (base/token_sampling.h). A list of candidates is kCandidates logits, then as
// many ids (int32), the likeliest first and ties by the lower id; an id of -1 ends a shorter one.
// NaN counts as likelier than everything.
inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectSharedBytes = 8208;
struct SelectCandidatesParameters {
  ConstRows logits;
  int width = 0;
  int32_t first_id = 0;  // of column 0
  int slice = 0;         // columns of a list
  Rows out;              // lists of each row
};
CudaKernelOf<SelectCandidatesParameters> SelectCandidatesKernel();  // grid {slices, rows}

inline constexpr int kSampleSharedBytes = 22560;
struct SampleParameters {
  ConstRows candidates;  // `lists` of them in each row
  int lists = 0;
  const TokenSampling* draws = nullptr;  // [rows]
  const int32_t* banned = nullptr;
  int32_t* drawn = nullptr;         // [rows] an id, kNotFinite or kNothingToSample
  int32_t* last_sampled = nullptr;  // [slots] an id; 0 where there is none
};
CudaKernelOf<SampleParameters> SampleKernel();  // grid {rows}, kSelectThreads

// token_ids[t] = last_sampled[slot of t] where it is negative.
struct FillInSampledParameters {
  const int32_t* last_sampled = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* token_seq = nullptr;
  int32_t* token_ids = nullptr;
  int tokens = 0;
};
CudaKernelOf<FillInSampledParameters> FillInSampledKernel();  // grid {T / kRowThreads}

// ---- for measurements: sums[thread] = all words that the thread read, exclusively or'ed.
struct ReadAllParameters {
  const unsigned char* from = nullptr;
  int64_t num_chunks = 0;    // of 16 bytes
  uint32_t* sums = nullptr;  // [blocks][kRowThreads]
};
CudaKernelOf<ReadAllParameters> ReadAllKernel();  // grid {any}

}  // namespace bulkhead::cuda
