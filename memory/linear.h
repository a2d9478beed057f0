// Linear: a weight matrix in a backend's layout, and WeightSink, the destination of a rank's rows
// of a weight: shard/ fills what kernels/ packs, and neither depends on the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/fp4.h"
#include "memory/matrix.h"
#include "memory/weight_format.h"

namespace bulkhead {

// Quantisation groups along the inputs of a weight: the weights of one output and group share a
// scale s and a zero z; code q means (q - z) * s, exact in f32. int4: codes in [0, 15], zeros in
// [0, 16]; int8: codes in [0, 255], zero 128. mxfp4 and nvfp4: code q means
// (kFp4Steps[q] - kFp4Zero) * s / 2 (memory/fp4.h); E4M3 scales are rounded to f32 when multiplied
// by the output's factor, and so is the weight. fp8 (E4M3): the value of code q times s, below
// kEndOfFp8Scales, rounded to f32.
struct WeightGroups {
  int size = 0;     // group size in inputs, of the whole weight; 0: not quantised
  int phase = 0;    // position of this share's first input in its group
  int indexed = 0;  // 0: groups ascend; else the whole weight's number of groups, and an index
                    // gives each input's group (GPTQ with act order)
  ScaleFormat scales = ScaleFormat::kF16;
};

inline constexpr float kEndOfFp8Scales = 256.0F;

// The shape of one rank's share of a weight.
//
// k_borders cuts the inputs [0, cols) into a power-of-two number of slices (1 for column-parallel
// products; 8, 4, 2 or 1 for row-parallel ones, the subtree that this rank owns): slice i is
// [k_borders[i], k_borders[i + 1]). Every output element is one chain of fused multiply-adds over
// ascending k per slice, from +0; the slices are added as a balanced binary tree. An empty slice
// contributes nothing: its partial sum is -0.0, the neutral element of IEEE addition.
struct LinearShape {
  int64_t rows = 0;  // outputs on this rank
  int64_t cols = 0;  // inputs on this rank
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> k_borders;  // {0, cols} for a single slice
  WeightGroups groups = {};        // quantised formats only

  static LinearShape Whole(int64_t rows, int64_t cols, DType dtype) {
    return LinearShape{rows, cols, WeightFormatOf(dtype), {0, cols}};
  }
  int num_slices() const { return static_cast<int>(k_borders.size()) - 1; }
};

// A run of inputs of a quantised weight between adjacent group and slice borders: one scale and one
// zero per output. A group cut by a slice border has the same ones on both sides. With an index,
// runs of at most kIndexedCellInputs inputs.
struct WeightCell {
  int64_t begin = 0;
  int64_t end = 0;
  int slice = 0;
  int64_t group = 0;  // among the groups the share touches; 0 with an index

  int64_t size() const { return end - begin; }
};
inline constexpr int kIndexedCellInputs = 128;
std::vector<WeightCell> CellsOf(const LinearShape& shape);  // ascending; none for empty slices
// Number of groups the share touches; with an index, of the whole weight.
int64_t NumGroups(const LinearShape& shape);

struct Linear {
  LinearShape shape;
  std::byte* packed = nullptr;  // in its backend's layout; not owned
};

// Rows of a quantised weight as in the checkpoint; not owned.
struct QuantizedRows {
  int64_t rows = 0;
  const uint8_t* codes = nullptr;     // [rows, cols]
  const uint16_t* scales = nullptr;   // [rows, NumGroups], in the format of WeightGroups
  const uint8_t* zeros = nullptr;     // [rows, NumGroups]; int8 and int4
  const float* f32_scales = nullptr;  // fp8: instead of `scales`
  const float* factors = nullptr;     // [rows], with scales in E4M3
};

// Takes rows of one Linear and stores them in its format. Different rows may be put by several
// threads concurrently.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // rows: [n, shape.cols], f32, bf16 or f16; they become rows [row_begin, row_begin + n). Rounds to
  // nearest even; values outside the f16 range become infinite. A quantised format computes a scale
  // and a zero per cell; one with an index does not support this.
  virtual void PutRows(int64_t row_begin, ConstMatrixView rows) = 0;
  // The same for quantised rows; codes are stored unchanged.
  virtual void PutQuantizedRows(int64_t row_begin, const QuantizedRows& rows) = 0;
  // The group of each input; once, before or after the rows, for a Linear with an index.
  virtual void PutGroupIndex(absl::Span<const int32_t> group_of_input) = 0;
  // Maximum host memory in use from its first row until its last.
  virtual int64_t HostBytes() const { return 0; }
};

}  // namespace bulkhead
