// The products in int8: what crosses from the CPU backend into int8_products.cc, compiled per
// instruction set. kernels/reference/input_quantizer.h and ActivationDType (kernels/backend.h) say
// what is computed.
#pragma once

#include <stdint.h>

#include "kernels/cpu/products.h"
#include "kernels/cpu/quantized_layout.h"

namespace bulkhead {

// Rows of quantised inputs: codes as PackedCell::x_offset says, padded with 0 to fours, and each
// cell's scale and sum of codes.
struct QuantizedInputs {
  int8_t* codes;
  int64_t row_bytes;  // QuantizedPanels::x_bytes at least
  float* scales;      // [rows, cells]
  int32_t* sums;      // [rows, cells]
  int64_t cells;
};

struct Int8Product {
  const QuantizedPanels* weight;
  bool is_int4;
  QuantizedInputs x;
  int64_t outputs;           // N
  const int64_t* k_borders;  // [num_slices + 1]
  int num_slices;
  float* out;  // [rows, outputs]
  int64_t out_stride;
};

struct Int8Kernels {
  // Row `row` of x.codes, x.scales and x.sums from `inputs`.
  void (*quantize_row)(const QuantizedPanels& weight, const float* inputs, int64_t row,
                       const QuantizedInputs& x);
  void (*multiply)(const Int8Product& product, const ProductPart& part);  // no scratch
};

namespace plain {
extern const Int8Kernels kInt8Kernels;
}
namespace avx2 {
extern const Int8Kernels kInt8Kernels;
}
namespace avx512 {
extern const Int8Kernels kInt8Kernels;
}
namespace avx512vnni {
extern const Int8Kernels kInt8Kernels;
}

}  // namespace bulkhead
