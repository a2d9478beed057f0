// What MatMul takes of the CPU backend's workspace.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/matmul/int8.h"
#include "kernels/matmul/op.h"
#include "memory/ledger.h"

namespace bulkhead {

// Of a thread's scratch in SumExperts: slices' sums of a panel's columns for some tokens.
inline constexpr int64_t kExpertSumTokens = 512;
inline constexpr int64_t kExpertSumFloats = kExpertSumTokens * kMaxSlices * kPanelColumns;

// Whether products with such a weight quantise their inputs.
bool InInt8(ActivationDType activation, const LinearShape& shape);
// Whether products with such a weight are ActivationDType::kBf16's, or kBf16Amx's.
bool InBf16Pairs(ActivationDType activation, const LinearShape& shape);
bool InBf16Tiles(ActivationDType activation, const LinearShape& shape);

// Null pointers where there is no memory behind the allocator.
struct CpuMatMulScratch {
  CpuMatMulScratch() = default;
  CpuMatMulScratch(const StepLimits& limits, BumpAllocator& allocator);
  float* Of(int thread) const { return floats + thread * thread_floats; }
  // Where quantised inputs of a weight of these panels lie.
  QuantizedInputs InputsFor(const QuantizedPanels& panels) const;
  // Where inputs of an expert in bf16_tiles lie, of pairs from `first` on; the shared expert comes
  // behind all others, and `first` is the number of pairs.
  uint16_t* ExpertTiles(int expert, int64_t first) const;

  float* bf16_rows = nullptr;      // inputs of few rows in bf16, or of a block of SumExperts
  uint16_t* bf16_tiles = nullptr;  // of all rows or pairs, as MultiplyBf16InTiles takes them
  float* floats = nullptr;  // blocks of x and unfinished sums, for each of kMaxThreads threads
  int64_t thread_floats = 0;
  int max_rows = 0;
  // Quantised inputs: the most that one product of all tokens has.
  int64_t max_inputs = 0;       // of quantised rows
  int64_t max_tile_inputs = 0;  // of bf16_tiles
  int64_t max_expert_inputs = 0;
  int64_t max_bf16_rows = 0;
  QuantizedInputs inputs{};
};

// x * weight^T as the kernels take it; points to `panels` where the weight is quantised.
Product ProductOf(ConstMatrixView x, const Linear& weight, MatrixView out, QuantizedPanels& panels);
// The same in int8, of `rows` quantised inputs in `tiles`.
Int8Product Int8ProductOf(const Linear& weight, const QuantizedPanels& panels,
                          const QuantizedInputs& x, int64_t rows, int64_t tiles, MatrixView out);

}  // namespace bulkhead
