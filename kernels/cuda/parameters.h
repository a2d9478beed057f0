// Parameter types shared by several kernels. Kernels use only CUDA and intrinsics.h; parameters and
// launch of a kernel used by one op are in the op's file.
//
// Pointers are device memory. Letters as in memory/matrix.h. Activations are f32 in rows that are
// `stride` elements apart. There are no atomics on floats: the same step gives the same bits.
#pragma once

#include <stdint.h>

namespace bulkhead::cuda {

struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
};
struct ConstRows {
  const float* data = nullptr;
  int64_t stride = 0;
};
// Rows that only products read may be written in the products' input format.
enum class Numbers : int32_t { kF32, kBF16, kF16 };
struct OutRows {
  void* data = nullptr;
  int64_t stride = 0;
  Numbers numbers = Numbers::kF32;
};

// ---- one block of kRowThreads per row; grid {T}. Some kernels use more blocks or threads: in a
// step of one token a row's block runs alone.
inline constexpr int kRowThreads = 256;
// For kernels that work head by head: heads per block, one warp each.
inline constexpr int kHeadWarps = 4;

// One layer of the cache, and where a step's tokens are in it (kernels/backend.h, StepIndex).
struct CacheParameters {
  unsigned char* base = nullptr;
  int64_t block_bytes = 0;  // of this layer
  int64_t head_bytes = 0;
  int64_t keys_bytes = 0;
  int block_tokens = 0;  // a power of two
  int block_shift = 0;   // log2 of block_tokens
  int head_dim = 0;
  const int32_t* seq_begin = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* position = nullptr;
  const int32_t* token_seq = nullptr;
  const int32_t* block_tables = nullptr;
  int block_table_stride = 0;
  const float* key_scales = nullptr;  // fp8, [KV heads]; null: 1
  const float* value_scales = nullptr;
};

}  // namespace bulkhead::cuda
