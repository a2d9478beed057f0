#include "kernels/cuda/cuda_backend.h"

#include <mutex>
#include <utility>

#include "kernels/cuda/all_kernels.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_sampling_ops.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch_arguments.h"
#include "kernels/cuda/linear_packing.h"
#include "kernels/cuda/products.h"

namespace bulkhead {
namespace {

using cuda::InFours;
using cuda::NumBlocks;
using cuda::OneBlockPerRow;
using cuda::OutRowsOf;
using cuda::RowsOf;
using cuda::VectorOf;

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device& device, CudaDriver& driver, std::unique_ptr<GemmLibrary> library)
      : device_(device),
        driver_(driver),
        sizes_(NewCudaSizes(library != nullptr)),
        sampling_ops_(std::make_unique<CudaSamplingOps>(driver)),
        products_(driver, std::move(library)),
        attention_(device, driver) {
    for (const CudaKernel& kernel : cuda::AllKernels()) driver_.Load(kernel);
  }

  Device& device() override { return device_; }
  SamplingOps* sampling_ops() const override { return sampling_ops_.get(); }

  int64_t PackedBytes(const LinearShape& shape) const override {
    return sizes_->PackedBytes(shape);
  }

  std::unique_ptr<WeightSink> Pack(const Linear& linear) override {
    return NewPackingSink(linear, [this](const void* host, std::byte* packed, int64_t bytes) {
      const std::lock_guard lock(packing_);
      device_.CopyFromHost(host, packed, bytes);
      // A device that is lost says so again at the next step.
      device_.Synchronize().IgnoreError();
    });
  }

  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override {
    return sizes_->WorkspaceBytes(limits, heads);
  }

  DType product_input_dtype(WeightFormat weights) const override {
    return sizes_->product_input_dtype(weights);
  }

  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override {
    BumpAllocator allocator(workspace);
    products_.SetScratch(products_.LayOut(limits, allocator));
    attention_.SetScratch(CudaAttentionScratch(limits, heads, allocator), heads);
  }

  void BeginStep(const StepIndex& host_index) override { attention_.BeginStep(host_index); }

  void Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
             MatrixView out) override {
    if (out.empty()) return;
    const PackedLayout layout(table.shape);
    Enqueue(driver_, cuda::EmbedKernel(table.shape.format), OneBlockPerRow(out),
            {tokens, layout.Parameters(table.shape, table.packed), first_row, RowsOf(out)});
  }

  void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) override {
    cuda::RmsNormParameters p;
    p.x = RowsOf(x);
    Norm(p, InFours(x), weight, epsilon, out);
  }

  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    products_.MatMul(x, weight, out);
  }
  absl::Status WarmUpMatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    return products_.WarmUp(x, weight, out);
  }

  void AddBias(ConstMatrixView bias, MatrixView x) override {
    if (x.empty()) return;
    Enqueue(driver_, cuda::AddKernel(), OneBlockPerRow(x),
            {{bias.F32(), 0}, nullptr, static_cast<int>(x.cols()), RowsOf(x)});
  }

  void NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                MatrixView qkv) override {
    if (qkv.empty()) return;
    const int all = heads.num_heads + heads.num_kv_heads;
    Enqueue(driver_, cuda::NormRopeKernel(),
            {.grid = {index.num_tokens, NumBlocks(all, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1}},
            {index.position, VectorOf(q_norm), VectorOf(k_norm), epsilon, RowsOf(rope),
             heads.num_heads, heads.num_kv_heads, heads.head_dim, RowsOf(qkv)});
  }

  void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                const KvLayerView& kv) override {
    if (qkv.empty() || heads.num_kv_heads == 0) return;
    Enqueue(driver_, cuda::AppendKvKernel(kv.geometry.format),
            {.grid = {index.num_tokens, NumBlocks(2 * heads.num_kv_heads, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1}},
            {CacheOf(index, kv), RowsOf(qkv), heads.num_heads, heads.num_kv_heads});
  }

  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, float scale, int window, MatrixView out) override {
    attention_.Attend(index, heads, qkv, kv, scale, window, out);
  }

  void SwiGlu(ConstMatrixView gate_up, MatrixView out) override {
    if (out.empty()) return;
    LaunchShape shape = OneBlockPerRow(out);
    shape.grid[1] = NumBlocks(out.cols(), cuda::kSwiGluCols);
    Enqueue(driver_, cuda::SwiGluKernel(InFours(gate_up) && InFours(out)), shape,
            {RowsOf(gate_up), static_cast<int>(out.cols()), OutRowsOf(out)});
  }

  void AddResidual(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden) override {
    if (hidden.empty()) return;
    Enqueue(driver_, cuda::AddKernel(), OneBlockPerRow(hidden),
            {RowsOf(sum), VectorOf(bias), static_cast<int>(hidden.cols()), RowsOf(hidden)});
  }

  void AddResidualNorm(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden,
                       ConstMatrixView weight, float epsilon, MatrixView normed) override {
    cuda::RmsNormParameters p;
    p.x = RowsOf(ConstMatrixView(hidden));
    p.addend = RowsOf(sum);
    p.bias = VectorOf(bias);
    p.added = RowsOf(hidden);
    Norm(p, InFours(sum) && InFours(bias) && InFours(hidden), weight, epsilon, normed);
  }

  void SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) override {
    if (out.empty()) return;
    Enqueue(driver_, cuda::SelectRowsKernel(), OneBlockPerRow(out),
            {RowsOf(x), rows, static_cast<int>(out.cols()), RowsOf(out)});
  }

  void Fill(float value, MatrixView x) override {
    if (x.empty()) return;
    Enqueue(driver_, cuda::FillKernel(), OneBlockPerRow(x),
            {value, static_cast<int>(x.cols()), RowsOf(x)});
  }

 private:
  void Norm(cuda::RmsNormParameters p, bool in_fours, ConstMatrixView weight, float epsilon,
            MatrixView out) {
    if (out.empty()) return;
    p.weight = weight.F32();
    p.epsilon = epsilon;
    p.width = static_cast<int>(out.cols());
    p.out = OutRowsOf(out);
    const bool fours =
        in_fours && InFours(weight) && InFours(out) && out.cols() <= cuda::kMostNormedFours;
    LaunchShape shape = OneBlockPerRow(out);
    shape.block[0] = cuda::kNormThreads;
    shape.shared_bytes = cuda::kNormThreads / 32 * 4;
    Enqueue(driver_, cuda::RmsNormKernel(p.addend.data != nullptr, fours), shape, p);
  }

  Device& device_;
  CudaDriver& driver_;
  const std::unique_ptr<BackendSizes> sizes_;
  const std::unique_ptr<SamplingOps> sampling_ops_;
  std::mutex packing_;  // of copies from the threads that load
  CudaProducts products_;
  CudaAttention attention_;
};

}  // namespace

std::unique_ptr<Backend> NewCudaBackend(Device& device, CudaDriver& driver,
                                        std::unique_ptr<GemmLibrary> library) {
  return std::make_unique<CudaBackend>(device, driver, std::move(library));
}

}  // namespace bulkhead
