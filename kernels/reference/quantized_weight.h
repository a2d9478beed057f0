// A quantised weight in the reference backends: per row its codes (for fp4 steps), then scales and
// zeros of its cells (of its groups, with an index); then the index.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/packing/weight_quantizer.h"
#include "memory/linear.h"

namespace bulkhead {

class QuantizedWeight {
 public:
  explicit QuantizedWeight(const Linear& linear);
  static int64_t Bytes(const LinearShape& shape);

  const LinearShape& shape() const { return linear_.shape; }
  const std::vector<WeightCell>& cells() const { return cells_; }
  uint8_t* codes(int64_t row) const { return codes_ + row * shape().cols; }
  uint32_t* scales(int64_t row) const { return scales_ + row * scalings_; }
  uint8_t* zeros(int64_t row) const { return zeros_ + row * scalings_; }
  int32_t* index() const { return index_; }  // [cols]; null without one

  // For one cell; not with an index.
  WeightScaling ScalingOf(int64_t row, int64_t cell) const {
    return {scales(row)[cell], zeros(row)[cell], shape().groups.scales};
  }
  // All inputs of one output, dequantised.
  void Row(int64_t row, float* out) const;

 private:
  const Linear linear_;
  const std::vector<WeightCell> cells_;
  const int64_t scalings_;  // per row
  uint8_t* codes_;
  uint32_t* scales_;
  uint8_t* zeros_;
  int32_t* index_;
};

std::unique_ptr<WeightSink> NewQuantizedWeightSink(const Linear& linear);

}  // namespace bulkhead
