// The SIMD backend of the CPU: products, row ops and the few plain loops, on one thread pool.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/product_ops.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "memory/ledger.h"

namespace bulkhead {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Device& device, Isa isa, ActivationDType activation, std::unique_ptr<ThreadPool> pool)
      : device_(device),
        convert_(ConvertKernelsOf(isa)),
        packing_(PackingKernelsOf(isa)),
        pool_(std::move(pool)),
        products_(*pool_, isa, activation),
        rows_(*pool_, isa) {}

  Device& device() override { return device_; }

  int64_t PackedBytes(const LinearShape& shape) const override { return PanelBytes(shape); }

  std::unique_ptr<WeightSink> Pack(const Linear& linear) override {
    return NewPanelSink(linear, convert_, packing_);
  }

  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override {
    BumpAllocator allocator;
    allocator.Next(products_.WorkspaceBytes(limits));
    allocator.Next(RowOps::WorkspaceBytes(limits, heads));
    return allocator.used_bytes();
  }

  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override {
    BumpAllocator allocator(workspace);
    products_.SetWorkspace(allocator.Next(products_.WorkspaceBytes(limits)), limits);
    rows_.SetWorkspace(allocator.Next(RowOps::WorkspaceBytes(limits, heads)), limits, heads);
  }

  void Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
             MatrixView out) override {
    products_.Embed(tokens, table, first_row, out);
  }

  void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) override {
    rows_.RmsNorm(x, weight, epsilon, out);
  }

  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    products_.MatMul(x, weight, out);
  }

  void AddBias(ConstMatrixView bias, MatrixView x) override {
    if (x.empty()) return;
    BH_CHECK(bias.cols() == x.cols());
    ForRows(x, [&](int64_t t) {
      const float* from = bias.F32();
      float* to = x.F32(t);
      for (int64_t i = 0; i < x.cols(); ++i) to[i] += from[i];
    });
  }

  void NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                MatrixView qkv) override {
    rows_.NormRope(index, heads, q_norm, k_norm, epsilon, rope, qkv);
  }

  void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                const KvLayerView& kv) override {
    rows_.AppendKv(index, heads, qkv, kv);
  }

  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, float scale, int window, MatrixView out) override {
    rows_.Attend(index, heads, qkv, kv, scale, window, out);
  }

  void SwiGlu(ConstMatrixView gate_up, MatrixView out) override { rows_.SwiGlu(gate_up, out); }

  void AddResidual(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden) override {
    if (hidden.empty()) return;
    BH_CHECK(sum.rows() == hidden.rows() && sum.cols() == hidden.cols());
    BH_CHECK(bias.empty() || bias.cols() == hidden.cols());
    ForRows(hidden, [&](int64_t t) {
      const float* from = sum.F32(t);
      float* to = hidden.F32(t);
      if (bias.empty()) {
        for (int64_t i = 0; i < hidden.cols(); ++i) to[i] += from[i];
      } else {
        const float* shift = bias.F32();
        for (int64_t i = 0; i < hidden.cols(); ++i) to[i] += from[i] + shift[i];
      }
    });
  }

  void SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) override {
    if (out.empty()) return;
    BH_CHECK(x.cols() == out.cols());
    ForRows(out, [&](int64_t t) {
      BH_CHECK(rows[t] >= 0 && rows[t] < x.rows());
      std::copy_n(x.F32(rows[t]), out.cols(), out.F32(t));
    });
  }

  void Fill(float value, MatrixView x) override {
    if (x.empty()) return;
    ForRows(x, [&](int64_t t) { std::fill_n(x.F32(t), x.cols(), value); });
  }

 private:
  // body(row) for each row of `x`.
  template <typename Body>
  void ForRows(MatrixView x, const Body& body) {
    pool_->ParallelForWork(x.rows(), x.rows() * x.cols(), [&](int, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) body(t);
    });
  }

  Device& device_;
  const ConvertKernels& convert_;
  const PackingKernels& packing_;
  const std::unique_ptr<ThreadPool> pool_;
  ProductOps products_;
  RowOps rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(Device& device,
                                                       const CpuBackendOptions& options) {
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("num_threads is ", options.num_threads,
                                                   "; it must lie in [1, ", kMaxThreads, "]"));
  }
  BH_ASSIGN_OR_RETURN(const Isa isa, ParseIsa(options.isa));
  BH_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool,
                      ThreadPool::Create(options.num_threads, options.may_spin));
  return std::make_unique<CpuBackend>(device, isa, options.activation, std::move(pool));
}

}  // namespace bulkhead
