// MatMulHeads of packed weights on a backend's device, for the tests of CPUs and of CUDA.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {

struct HeadsCase {
  int num_heads;
  int64_t rows;  // of x
  int64_t inputs;
  int64_t outputs;
  int64_t x_step;
  int64_t out_step;
  WeightFormat format;

  LinearShape shape() const {
    LinearShape shape{outputs, inputs, format, {0, inputs}};
    if (IsQuantized(format)) shape.groups.size = 32;
    return shape;
  }
};

// The case's weights, packed at equal distances, and a workspace for products of up to max_inputs.
class HeadProducts {
 public:
  static constexpr float kUntouched = 12345.0F;

  HeadProducts(Backend& backend, const HeadsCase& c, int max_rows = 512, int64_t max_inputs = 256)
      : backend_(backend), case_(c) {
    static constexpr int32_t kHeadToKv = 0;
    const StepLimits limits{.max_num_batched_tokens = max_rows,
                            .max_num_seqs = 1,
                            .max_model_len = 16,
                            .max_int8_inputs = max_inputs,
                            .max_inputs = max_inputs};
    const HeadLayout heads{1, 1, 16, &kHeadToKv};
    workspace_ = Allocate(backend.WorkspaceBytes(limits, heads));
    backend.SetWorkspace(workspace_.data(), limits, heads);
    const int64_t head_bytes = RoundUp(backend.PackedBytes(c.shape()), int64_t{64});
    weights_ = Allocate(c.num_heads * head_bytes);
    for (int i = 0; i < c.num_heads; ++i) {
      const Linear linear{c.shape(), weights_.data() + i * head_bytes};
      const std::vector<float> values =
          NormalFloats(c.outputs * c.inputs, static_cast<uint32_t>(i));
      backend.Pack(linear)->PutRows(0, View(values, c.outputs, c.inputs, c.inputs));
      heads_.push_back(linear);
    }
  }

  // Rows [first, first + rows) of the case's x, in f32.
  std::vector<float> Run(int64_t first, int64_t rows) {
    const HeadsCase& c = case_;
    const int64_t x_cols = c.num_heads * c.x_step + 3, out_cols = c.num_heads * c.out_step + 5;
    const std::vector<float> x = NormalFloats(c.rows * x_cols, 100);
    std::vector<float> out(rows * out_cols, kUntouched);
    Multiply(View(x, c.rows, x_cols, x_cols).Rows(first, rows),
             View(out, rows, out_cols, out_cols));
    return out;
  }

  void Multiply(ConstMatrixView x, MatrixView out) {
    backend_.MatMulHeads(x, case_.x_step, heads_, out, case_.out_step);
    const absl::Status status = backend_.device().Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  Buffer Allocate(int64_t bytes) {
    return std::move(backend_.device().Allocate(std::max<int64_t>(64, bytes))).value();
  }

  Backend& backend_;
  const HeadsCase case_;
  Buffer workspace_;
  Buffer weights_;
  std::vector<Linear> heads_;
};

}  // namespace bulkhead
