// MatMul's part of the CPU backend's workspace.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/matmul/int8.h"
#include "kernels/matmul/op.h"
#include "memory/ledger.h"

namespace bulkhead {

// A thread's scratch in SumExperts: slice sums of a panel's columns for some tokens.
inline constexpr int64_t kExpertSumTokens = 512;
inline constexpr int64_t kExpertSumFloats = kExpertSumTokens * kMaxSlices * kPanelColumns;

// Whether products with this weight quantise their inputs.
bool InInt8(ActivationDType activation, const LinearShape& shape);
// Whether products with this weight are kBf16's, or kBf16Amx's (ActivationDType).
bool InBf16Pairs(ActivationDType activation, const LinearShape& shape);
bool InBf16Tiles(ActivationDType activation, const LinearShape& shape);

// Null pointers if the allocator only plans.
struct CpuMatMulScratch {
  CpuMatMulScratch() = default;
  CpuMatMulScratch(const StepLimits& limits, BumpAllocator& allocator);
  float* Of(int thread) const { return floats + thread * thread_floats; }
  // Where the quantised inputs of a weight of these panels are stored.
  QuantizedInputs InputsFor(const QuantizedPanels& panels) const;
  // Where an expert's inputs are stored in bf16_tiles, for pairs from `first` on; the shared
  // expert's come after all others, with `first` the number of pairs.
  uint16_t* ExpertTiles(int expert, int64_t first) const;

  float* bf16_rows = nullptr;      // inputs of few rows in bf16, or of a block of SumExperts
  uint16_t* bf16_tiles = nullptr;  // of all rows or pairs, in MultiplyBf16InTiles' layout
  float* floats = nullptr;  // blocks of x and unfinished sums, for each of kMaxThreads threads
  int64_t thread_floats = 0;
  int max_rows = 0;
  // Quantised inputs: the maximum of one product of all tokens.
  int64_t max_inputs = 0;       // of quantised rows
  int64_t max_tile_inputs = 0;  // of bf16_tiles
  int64_t max_expert_inputs = 0;
  int64_t max_bf16_rows = 0;
  QuantizedInputs inputs{};
};

// x * weight^T as the kernels take it; points to `panels` if the weight is quantised.
Product ProductOf(ConstMatrixView x, const Linear& weight, MatrixView out, QuantizedPanels& panels);
// The same in int8, for `rows` quantised inputs in `tiles`.
Int8Product Int8ProductOf(const Linear& weight, const QuantizedPanels& panels,
                          const QuantizedInputs& x, int64_t rows, int64_t tiles, MatrixView out);

}  // namespace bulkhead
