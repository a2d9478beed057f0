// ResidualNorm: what is computed from a sum over ranks (kernels/ops.inc, AddResidualNorm).
#pragma once

#include "memory/matrix.h"

namespace bulkhead {

struct ResidualNorm {
  ConstMatrixView bias = {};  // [1, D] f32; empty: none
  float factor = 1;
  MatrixView hidden = {};       // [T, D]
  ConstMatrixView weight = {};  // [1, D] f32
  float epsilon = 0;
  MatrixView normed = {};  // [T, D]
};

}  // namespace bulkhead
