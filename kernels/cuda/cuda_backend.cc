#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/all_kernels.h"
#include "kernels/cuda/cuda_draw_verbs.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch_arguments.h"
#include "kernels/cuda/linear_packing.h"
#include "kernels/cuda/products.h"
#include "memory/check.h"

namespace bulkhead {
namespace {

using cuda::CeilDiv;
using cuda::OneBlockPerRow;
using cuda::RowsOf;
using cuda::VectorOf;

// How attention is cut into blocks.
struct AttentionCuts {
  int head_tiles = 1;
  int heads_of_tile = 1;
  int column_tiles = 1;

  AttentionCuts(int most_heads_of_kv, int head_dim, bool split) {
    const bool wide = head_dim <= 128 && (!split || most_heads_of_kv > 8);
    column_tiles = wide ? 2 : 1;
    heads_of_tile = std::clamp(most_heads_of_kv, 1, 8 * column_tiles);
    head_tiles = CeilDiv(std::max(most_heads_of_kv, 1), heads_of_tile);
  }
  int tile_tokens() const { return std::max(1, 8 * column_tiles / heads_of_tile); }
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device& device, CudaDriver& driver, std::unique_ptr<GemmLibrary> library)
      : device_(device),
        driver_(driver),
        sizes_(NewCudaSizes(library != nullptr)),
        draw_verbs_(std::make_unique<CudaDrawVerbs>(driver)),
        products_(driver, std::move(library)) {
    for (const CudaKernel& kernel : cuda::AllKernels()) driver_.Load(kernel);
  }

  Device& device() override { return device_; }
  DrawVerbs* draw_verbs() const override { return draw_verbs_.get(); }

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

  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override {
    Carver carver(workspace);
    products_.SetScratch(products_.LayOut(limits, carver));
    scratch_ = CudaAttentionScratch(limits, heads, carver);
    head_begin_.assign(heads.num_kv_heads + 1, heads.num_heads);
    most_heads_of_kv_ = 0;
    for (int kv = heads.num_kv_heads - 1; kv >= 0; --kv) {
      const int32_t* const all = heads.head_to_kv;
      head_begin_[kv] =
          static_cast<int32_t>(std::lower_bound(all, all + heads.num_heads, kv) - all);
      most_heads_of_kv_ = std::max(most_heads_of_kv_, head_begin_[kv + 1] - head_begin_[kv]);
    }
    device_.CopyFromHost(head_begin_.data(), reinterpret_cast<std::byte*>(scratch_.head_begin),
                         static_cast<int64_t>(head_begin_.size()) * 4);
  }

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
    Norm(p, weight, epsilon, out);
  }

  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    products_.MatMul(x, weight, out);
  }
  absl::Status RehearseMatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    return products_.Rehearse(x, weight, out);
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
            {.grid = {index.num_tokens, CeilDiv(all, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1}},
            {index.position, VectorOf(q_norm), VectorOf(k_norm), epsilon, RowsOf(rope),
             heads.num_heads, heads.num_kv_heads, heads.head_dim, RowsOf(qkv)});
  }

  void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                const KvLayerView& kv) override {
    if (qkv.empty() || heads.num_kv_heads == 0) return;
    Enqueue(driver_, cuda::AppendKvKernel(kv.geometry.format),
            {.grid = {index.num_tokens, CeilDiv(2 * heads.num_kv_heads, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1}},
            {CacheOf(index, kv), RowsOf(qkv), heads.num_heads, heads.num_kv_heads});
  }

  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, float scale, int window, MatrixView out) override {
    if (out.empty()) return;
    cuda::AttendParameters p;
    p.cache = CacheOf(index, kv);
    p.qkv = RowsOf(qkv);
    p.head_begin = scratch_.head_begin;
    p.num_tokens = index.num_tokens;
    p.num_heads = heads.num_heads;
    p.split_tokens = scratch_.split_tokens;
    p.splits = scratch_.splits;
    p.window = window;
    p.scale = scale;
    p.parts = scratch_.parts;
    p.part_sums = scratch_.part_sums;
    p.out = RowsOf(out);
    AttendWith(true, {p.splits, heads.num_kv_heads, index.num_seqs}, kv, p);
    Enqueue(driver_, cuda::CombineKernel(),
            {.grid = {index.num_seqs, CeilDiv(heads.num_heads, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1}},
            p);
    if (index.num_tokens > index.num_seqs) {
      AttendWith(false, {index.num_tokens, heads.num_kv_heads, 1}, kv, p);
    }
  }

  void SwiGlu(ConstMatrixView gate_up, MatrixView out) override {
    if (out.empty()) return;
    Enqueue(driver_, cuda::SwiGluKernel(), OneBlockPerRow(out),
            {RowsOf(gate_up), static_cast<int>(out.cols()), RowsOf(out)});
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
    Norm(p, weight, epsilon, normed);
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
  void Norm(cuda::RmsNormParameters p, ConstMatrixView weight, float epsilon, MatrixView out) {
    if (out.empty()) return;
    p.weight = weight.F32();
    p.epsilon = epsilon;
    p.width = static_cast<int>(out.cols());
    p.out = RowsOf(out);
    LaunchShape shape = OneBlockPerRow(out);
    shape.shared_bytes = cuda::kRowThreads / 32 * 4;
    Enqueue(driver_, cuda::RmsNormKernel(p.addend.data != nullptr), shape, p);
  }

  static cuda::CacheParameters CacheOf(const StepIndex& index, const KvLayerView& kv) {
    const KvGeometry& g = kv.geometry;
    return {reinterpret_cast<unsigned char*>(kv.base),
            g.LayerBlockBytes(),
            g.HeadBytes(),
            g.KeysBytes(),
            g.block_tokens,
            g.head_dim,
            index.seq_begin,
            index.seq_slot,
            index.position,
            index.token_seq,
            index.block_tables,
            index.block_table_stride};
  }

  // `grid`: splits or tokens, KV heads, sequences.
  void AttendWith(bool split, std::array<int, 3> grid, const KvLayerView& kv,
                  cuda::AttendParameters p) {
    const AttentionCuts cuts(most_heads_of_kv_, kv.geometry.head_dim, split);
    p.head_tiles = cuts.head_tiles;
    p.heads_of_tile = cuts.heads_of_tile;
    p.tile_tokens = cuts.tile_tokens();
    const cuda::AttendLaunch launch =
        LaunchOf(kv.geometry.format, kv.geometry.head_dim, cuts.column_tiles, split);
    if (!split) grid[0] = CeilDiv(grid[0], p.tile_tokens);
    Enqueue(driver_, launch.kernel,
            {.grid = {grid[0], grid[1] * p.head_tiles, grid[2]},
             .block = {cuda::kAttendThreads, 1, 1},
             .shared_bytes = launch.shared_bytes},
            p);
  }

  static cuda::AttendLaunch LaunchOf(KvFormat format, int head_dim, int column_tiles, bool split) {
    switch (format) {
      case KvFormat::kBF16:
        return cuda::AttendBF16Kernel(head_dim, column_tiles, split);
      case KvFormat::kF16:
        return cuda::AttendF16Kernel(head_dim, column_tiles, split);
      case KvFormat::kInt8:
        return cuda::AttendInt8Kernel(head_dim, column_tiles, split);
      case KvFormat::kInt4:
        return cuda::AttendInt4Kernel(head_dim, column_tiles, split);
      case KvFormat::kF32:
        break;
    }
    BH_CHECK(false);
  }

  Device& device_;
  CudaDriver& driver_;
  const std::unique_ptr<BackendSizes> sizes_;
  const std::unique_ptr<DrawVerbs> draw_verbs_;
  std::mutex packing_;  // of copies from the threads that load
  CudaProducts products_;
  CudaAttentionScratch scratch_;
  std::vector<int32_t> head_begin_;  // on the host for as long as the copy may take
  int most_heads_of_kv_ = 0;
};

}  // namespace

std::unique_ptr<Backend> NewCudaBackend(Device& device, CudaDriver& driver,
                                        std::unique_ptr<GemmLibrary> library) {
  return std::make_unique<CudaBackend>(device, driver, std::move(library));
}

}  // namespace bulkhead
