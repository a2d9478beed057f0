// Linear: a weight matrix as a backend holds it, and WeightSink: where a rank's rows of a weight
// go, so that shard/ can fill what kernels/ packs without either knowing the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/matrix.h"
#include "memory/weight_format.h"

namespace bulkhead {

// How the inputs of a quantised weight are grouped: all weights of one output and one group have
// one scale s and one zero z, and a code q stands for (q - z) * s, which is exact in f32. int4:
// codes in [0, 15], zeros in [0, 16]; int8: codes in [1, 255], zero 128.
struct WeightGroups {
  int size = 0;     // inputs of a group of the whole weight; 0: not quantised
  int phase = 0;    // this share's first input is input `phase` of its group
  int indexed = 0;  // 0: groups ascend; else how many the whole weight has, an index says which one
                    // an input is in (GPTQ with act order)
};

// The shape of one rank's share of a weight.
//
// k_borders cuts the inputs [0, cols) into a power-of-two number of slices (1 for column-parallel
// products; 8, 4, 2 or 1 for row-parallel ones, the subtree that this rank owns): slice i is
// [k_borders[i], k_borders[i + 1]). Every output element is one chain of fused multiply-adds over
// ascending k per slice, from +0; the slices join as a balanced binary tree. An empty slice
// contributes nothing: as a term it is -0.0, the neutral element of IEEE addition.
struct LinearShape {
  int64_t rows = 0;  // outputs on this rank
  int64_t cols = 0;  // inputs on this rank
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> k_borders;  // {0, cols} for a product with one slice
  WeightGroups groups = {};        // of a quantised format

  static LinearShape Whole(int64_t rows, int64_t cols, DType dtype) {
    return LinearShape{rows, cols, WeightFormatOf(dtype), {0, cols}};
  }
  int num_slices() const { return static_cast<int>(k_borders.size()) - 1; }
};

// The inputs of a quantised weight between neighbouring borders of groups and slices: what has one
// scale and one zero per output. A group that a slice's border cuts has them on both sides. With an
// index, runs of kIndexedCellInputs inputs or less.
struct WeightCell {
  int64_t begin = 0;
  int64_t end = 0;
  int slice = 0;
  int64_t group = 0;  // among those that the share touches; with an index 0

  int64_t size() const { return end - begin; }
};
inline constexpr int kIndexedCellInputs = 128;
std::vector<WeightCell> CellsOf(const LinearShape& shape);  // ascending; empty slices have none
// The groups that the share touches; with an index those of the whole weight.
int64_t NumGroups(const LinearShape& shape);

struct Linear {
  LinearShape shape;
  std::byte* packed = nullptr;  // in the layout of the backend that made it; not owned
};

// Rows of a weight that a checkpoint holds quantised; not owned.
struct QuantizedRows {
  int64_t rows = 0;
  const uint8_t* codes = nullptr;    // [rows, cols]
  const uint16_t* scales = nullptr;  // [rows, NumGroups] f16
  const uint8_t* zeros = nullptr;    // [rows, NumGroups]
};

// Takes rows of one Linear and stores them in the Linear's format. Calls for different rows may
// come from several threads at once.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // rows: [n, shape.cols], f32, bf16 or f16; they become rows [row_begin, row_begin + n).
  // Conversion rounds to nearest even; a value that f16 cannot hold becomes infinite. A quantised
  // format gets a scale and a zero of its own for every cell; one with an index takes no such rows.
  virtual void PutRows(int64_t row_begin, ConstMatrixView rows) = 0;
  // The same for a quantised format, codes as they are.
  virtual void PutQuantizedRows(int64_t row_begin, const QuantizedRows& rows) = 0;
  // Which group each of the inputs is in; before or after the rows, once, for a Linear with an
  // index.
  virtual void PutGroupIndex(absl::Span<const int32_t> group_of_input) = 0;
};

}  // namespace bulkhead
