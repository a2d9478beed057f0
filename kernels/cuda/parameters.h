// What the parameters of several kernels are made of. A kernel is written in the words of
// intrinsics.h; its parameters and its launch are in the same file where one op has it alone.
//
// Pointers are device memory. Letters as in memory/matrix.h. Activations are f32 in rows that lie
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
// Where kernels work head by head: heads of a block, a warp each.
inline constexpr int kHeadWarps = 4;

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
  const float* key_scales = nullptr;  // fp8, [KV heads]; null: 1
  const float* value_scales = nullptr;
};

}  // namespace bulkhead::cuda
