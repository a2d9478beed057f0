#include "kernels/bench/gpu_bench.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/bench/gpu_machine.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

using OnResult = std::function<void(const KernelResult&)>;

constexpr int kBlockTokens = 16;
constexpr int kFewTokens[] = {1, 4, 8, 16, 32, 64};
constexpr int kManyTokens[] = {128, 512, 4096};
constexpr int kExpertPairs[] = {8, 128, 512};  // per expert
constexpr int kFollowUpTokens = 20;            // a new turn after a cached prefix

// Small enough for an emulator.
constexpr GpuBenchScale kQuick{.hidden = 64,
                               .ffn = 128,
                               .vocab = 96,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = 64,
                               .context = 96,
                               .num_seqs = 2,
                               .peak_size = 32,
                               .weight_bytes = 64 << 10,
                               .read_bytes = 64 << 10,
                               .round_seconds = 0,
                               .rounds = 1};

struct Shape {
  const char* name;
  int64_t inputs;
  int64_t outputs;
};

std::vector<Shape> ShapesOf(const GpuBenchScale& scale) {
  const int64_t q = int64_t{scale.num_heads} * scale.head_dim;
  const int64_t kv = int64_t{scale.num_kv_heads} * scale.head_dim;
  return {{"qkv", scale.hidden, q + 2 * kv},
          {"o", q, scale.hidden},
          {"gate_up", scale.hidden, 2 * scale.ffn},
          {"down", scale.ffn, scale.hidden},
          {"lm_head", scale.hidden, scale.vocab}};
}

// Shapes of an expert.
std::vector<Shape> ExpertShapesOf(const GpuBenchScale& scale) {
  const int64_t ffn = scale.ffn / 4;
  return {{"gate_up", scale.hidden, 2 * ffn}, {"down", ffn, scale.hidden}};
}

class GpuBench {
 public:
  GpuBench(GpuMachine& machine, const std::string& filter, const OnResult& on_result)
      : machine_(machine), filter_(filter), on_result_(on_result) {}

  absl::Status Launches();
  absl::Status Products(const Shape& shape, WeightFormat format, int group_size);
  // All experts, with the same number of pairs each.
  absl::Status Experts(const Shape& shape, WeightFormat format, int group_size);
  absl::Status DecodeAttention(KvFormat format);
  // One sequence, with `tokens` tokens in the step.
  absl::Status PrefillAttention(KvFormat format, int tokens);

 private:
  bool Wanted(const std::string& name) const { return absl::StartsWith(name, filter_); }
  // Whether a name with this prefix may be wanted.
  bool MayWant(const std::string& begin) const {
    return Wanted(begin) || absl::StartsWith(filter_, begin);
  }
  absl::Status Report(KernelResult result, double bytes, double operations,
                      const std::function<void(int64_t)>& body);
  absl::StatusOr<std::vector<Linear>> Pack(const LinearShape& shape, const Buffer& memory);
  absl::Status Attention(const std::string& name, KvFormat format, int num_seqs, int tokens_each);

  GpuMachine& machine_;
  const std::string& filter_;
  const OnResult& on_result_;
};

absl::Status GpuBench::Report(KernelResult result, double bytes, double operations,
                              const std::function<void(int64_t)>& body) {
  BH_ASSIGN_OR_RETURN(result.seconds, machine_.Seconds(body));
  result.gb_per_s = bytes / result.seconds * 1e-9;
  result.read_gb_per_s = machine_.read_gb_per_s();
  result.share_of_read = result.gb_per_s / result.read_gb_per_s;
  result.gop_per_s = operations / result.seconds * 1e-9;
  result.peak_gop_per_s = machine_.peak_gop_per_s();
  if (result.peak_gop_per_s > 0) result.share_of_peak = result.gop_per_s / result.peak_gop_per_s;
  on_result_(result);
  return absl::OkStatus();
}

// The cost of an empty kernel.
absl::Status GpuBench::Launches() {
  if (!Wanted("launch/")) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const Buffer row, machine_.Floats(64));
  const MatrixView x(row.data(), DType::kF32, 1, 64);
  return Report({.name = "launch/1x64", .format = "-", .activation = "f32"}, 0, 0,
                [&](int64_t) { machine_.backend().Fill(1.0F, x); });
}

// As many copies of a weight as fit, so that each use is read from memory.
absl::StatusOr<std::vector<Linear>> GpuBench::Pack(const LinearShape& shape, const Buffer& memory) {
  const int64_t bytes = machine_.backend().PackedBytes(shape);
  std::vector<Linear> copies;
  const int64_t stride = RoundUp(bytes, CudaDevice::kAlignBytes);
  for (int64_t at = 0; at + bytes <= memory.bytes(); at += stride) {
    copies.push_back({shape, memory.data() + at});
  }
  if (!IsQuantized(shape.format)) return copies;
  std::vector<float> row(shape.cols);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 0.01F * (static_cast<float>(i % 17) - 8);
  const ConstMatrixView view(reinterpret_cast<const std::byte*>(row.data()), DType::kF32, 1,
                             shape.cols);
  const auto sink = machine_.backend().Pack(copies[0]);
  for (int64_t n = 0; n < shape.rows; ++n) sink->PutRows(n, view);
  for (size_t i = 1; i < copies.size(); ++i) {
    machine_.driver().Copy(copies[0].packed, copies[i].packed, bytes);
  }
  BH_RETURN_IF_ERROR(machine_.driver().Synchronize());
  return copies;
}

absl::Status GpuBench::Products(const Shape& shape, WeightFormat format, int group_size) {
  const std::string of = absl::StrCat(shape.name, "/", shape.inputs, "x", shape.outputs, "/");
  if (!MayWant(absl::StrCat("product/", of)) && !MayWant(absl::StrCat("library/", of))) {
    return absl::OkStatus();
  }
  LinearShape linear{shape.outputs, shape.inputs, format, {0, shape.inputs}};
  linear.groups.size = group_size;
  const int64_t weight_bytes = machine_.backend().PackedBytes(linear);
  BH_ASSIGN_OR_RETURN(const Buffer memory,
                      machine_.Numbers(std::max(weight_bytes, machine_.scale().weight_bytes)));
  BH_ASSIGN_OR_RETURN(const std::vector<Linear> copies, Pack(linear, memory));
  const int64_t max_rows = machine_.scale().context;
  BH_ASSIGN_OR_RETURN(const Buffer x, machine_.Numbers(max_rows * shape.inputs * 2));
  const int64_t out_rows = std::min(max_rows, (int64_t{2} << 30) / 4 / shape.outputs);
  BH_ASSIGN_OR_RETURN(const Buffer out, machine_.Floats(out_rows * shape.outputs));
  const auto copy_of = [&](int64_t call) -> const Linear& { return copies[call % copies.size()]; };
  std::vector<int> counts(std::begin(kFewTokens), std::end(kFewTokens));
  counts.insert(counts.end(), std::begin(kManyTokens), std::end(kManyTokens));
  for (const int tokens : counts) {
    if (tokens > out_rows) continue;
    const double operations = 2.0 * tokens * static_cast<double>(shape.inputs * shape.outputs);
    KernelResult result{.name = absl::StrCat("product/", of, tokens),
                        .format = std::string(WeightFormatName(format)),
                        .activation = format == WeightFormat::kF16 ? "f16" : "bf16"};
    if (group_size > 0) absl::StrAppend(&result.format, "/", group_size);
    const auto bytes = static_cast<double>(weight_bytes);
    if (Wanted(result.name)) {
      const ConstMatrixView from(x.data(), machine_.backend().product_input_dtype(format), tokens,
                                 shape.inputs);
      const MatrixView to(out.data(), DType::kF32, tokens, shape.outputs);
      BH_RETURN_IF_ERROR(Report(result, bytes, operations, [&](int64_t call) {
        machine_.backend().MatMul(from, copy_of(call), to);
      }));
    }
    result.name = absl::StrCat("library/", of, tokens);
    GemmLibrary* const library = machine_.library();
    if (library == nullptr || IsQuantized(format) || !Wanted(result.name)) continue;
    const GemmProblem problem{.f16 = format == WeightFormat::kF16,
                              .tokens = tokens,
                              .outputs = shape.outputs,
                              .depth = shape.inputs,
                              .out_stride = shape.outputs};
    if (!library->Prepare(problem).ok()) continue;
    BH_RETURN_IF_ERROR(Report(result, bytes, operations, [&](int64_t call) {
      library->Multiply(problem, {x.data(), copy_of(call).packed}, out.data(),
                        machine_.library_workspace());
    }));
  }
  return absl::OkStatus();
}

absl::Status GpuBench::Experts(const Shape& shape, WeightFormat format, int group_size) {
  const std::string of =
      absl::StrCat("experts/", shape.name, "/", shape.inputs, "x", shape.outputs, "/");
  if (!MayWant(of)) return absl::OkStatus();
  const int count = machine_.scale().num_experts;
  LinearShape linear{shape.outputs, shape.inputs, format, {0, shape.inputs}};
  linear.groups.size = group_size;
  const int64_t weight_bytes = machine_.backend().PackedBytes(linear);
  BH_ASSIGN_OR_RETURN(const Buffer memory,
                      machine_.Numbers(count * RoundUp(weight_bytes, CudaDevice::kAlignBytes)));
  BH_ASSIGN_OR_RETURN(const std::vector<Linear> experts, Pack(linear, memory));
  BH_CHECK(static_cast<int>(experts.size()) == count);
  for (const int pairs : kExpertPairs) {
    const int64_t tokens = int64_t{count} * pairs;
    KernelResult result{.name = absl::StrCat(of, pairs),
                        .format = std::string(WeightFormatName(format)),
                        .activation = format == WeightFormat::kF16 ? "f16" : "bf16"};
    if (group_size > 0) absl::StrAppend(&result.format, "/", group_size);
    if (tokens > machine_.scale().context || !Wanted(result.name)) continue;
    std::vector<float> logits(tokens * count);
    for (int64_t t = 0; t < tokens; ++t) logits[t * count + t % count] = 1.0F;
    BH_ASSIGN_OR_RETURN(const Buffer logits_memory, machine_.Floats(tokens * count));
    machine_.device().CopyFromHost(logits.data(), logits_memory.data(), tokens * count * 4);
    BH_ASSIGN_OR_RETURN(const Buffer routed, machine_.Floats(4 * tokens + count + 1));
    auto* const floats = reinterpret_cast<float*>(routed.data());
    auto* const ints = reinterpret_cast<int32_t*>(floats + 2 * tokens);
    const ExpertRouting routing{count,          1, ints, floats, ints + 2 * tokens, ints + tokens,
                                floats + tokens};
    BH_ASSIGN_OR_RETURN(const Buffer x, machine_.Numbers(tokens * shape.inputs * 2));
    BH_ASSIGN_OR_RETURN(const Buffer out, machine_.Floats(tokens * shape.outputs));
    machine_.backend().RouteTokens({logits_memory.data(), DType::kF32, tokens, count}, {}, {}, {},
                                   routing);
    const ConstMatrixView from(x.data(), machine_.backend().product_input_dtype(format), tokens,
                               shape.inputs);
    const MatrixView to(out.data(), DType::kF32, tokens, shape.outputs);
    BH_RETURN_IF_ERROR(Report(
        result, static_cast<double>(weight_bytes) * count,
        2.0 * static_cast<double>(tokens) * static_cast<double>(shape.inputs * shape.outputs),
        [&](int64_t) { machine_.backend().MatMulExperts(from, experts, routing, to); }));
  }
  return absl::OkStatus();
}

// The step has the last `tokens_each` tokens of each sequence of the scale's context.
absl::Status GpuBench::Attention(const std::string& name, KvFormat format, int num_seqs,
                                 int tokens_each) {
  if (!Wanted(name)) return absl::OkStatus();
  const GpuBenchScale& scale = machine_.scale();
  const int blocks_each = scale.context / kBlockTokens;
  const int num_blocks = num_seqs * blocks_each;
  std::vector<int32_t> tables(num_blocks);
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(1));
  const int num_tokens = num_seqs * tokens_each;
  std::vector<int32_t> seq_begin(num_seqs + 1), slots(num_seqs), position(num_tokens),
      token_seq(num_tokens);
  for (int seq = 0; seq <= num_seqs; ++seq) seq_begin[seq] = seq * tokens_each;
  std::iota(slots.begin(), slots.end(), 0);
  for (int t = 0; t < num_tokens; ++t) {
    token_seq[t] = t / tokens_each;
    position[t] = scale.context - tokens_each + t % tokens_each;
  }
  const StepIndex host{num_seqs,        num_tokens,       seq_begin.data(), slots.data(),
                       position.data(), token_seq.data(), tables.data(),    blocks_each};
  std::vector<int32_t> all;
  const auto put = [&all](const std::vector<int32_t>& values) {
    const size_t at = all.size();
    all.insert(all.end(), values.begin(), values.end());
    return at;
  };
  const size_t at[] = {put(seq_begin), put(slots), put(position), put(token_seq), put(tables)};
  BH_ASSIGN_OR_RETURN(const Buffer index, machine_.Floats(static_cast<int64_t>(all.size())));
  machine_.device().CopyFromHost(all.data(), index.data(), static_cast<int64_t>(all.size()) * 4);
  const auto* const on_device = reinterpret_cast<const int32_t*>(index.data());
  const StepIndex device{num_seqs,          num_tokens,        on_device + at[0], on_device + at[1],
                         on_device + at[2], on_device + at[3], on_device + at[4], blocks_each};

  const KvGeometry geometry{scale.num_kv_heads, scale.head_dim, kBlockTokens, format};
  const int64_t block_bytes = geometry.LayerBlockBytes();
  BH_ASSIGN_OR_RETURN(const Buffer cache, machine_.Numbers((num_blocks + 1) * block_bytes));
  const KvLayerView kv{geometry, cache.data(), block_bytes};
  const int64_t q = int64_t{scale.num_heads} * scale.head_dim;
  const int64_t width = q + int64_t{2} * scale.num_kv_heads * scale.head_dim;
  BH_ASSIGN_OR_RETURN(const Buffer qkv, machine_.Floats(num_tokens * width));
  BH_ASSIGN_OR_RETURN(const Buffer out, machine_.Floats(num_tokens * q));
  machine_.backend().BeginStep(host);
  // Scores and values: two operations each, of the mean of visible positions.
  const double visible = scale.context - (tokens_each - 1) / 2.0;
  return Report({.name = name, .format = std::string(KvFormatName(format)), .activation = "bf16"},
                static_cast<double>(block_bytes) * num_blocks,
                4.0 * num_tokens * visible * static_cast<double>(q), [&](int64_t) {
                  machine_.backend().Attend(
                      device, machine_.heads(),
                      ConstMatrixView(qkv.data(), DType::kF32, num_tokens, width), kv,
                      {.scale = 0.1F}, MatrixView(out.data(), DType::kF32, num_tokens, q));
                });
}

std::string HeadsText(const GpuBenchScale& scale) {
  return absl::StrCat(scale.num_heads, "x", scale.num_kv_heads, "x", scale.head_dim);
}

absl::Status GpuBench::DecodeAttention(KvFormat format) {
  const GpuBenchScale& scale = machine_.scale();
  return Attention(
      absl::StrCat("attend/", scale.num_seqs, "x", scale.context, "/", HeadsText(scale), "/1"),
      format, scale.num_seqs, 1);
}

absl::Status GpuBench::PrefillAttention(KvFormat format, int tokens) {
  const GpuBenchScale& scale = machine_.scale();
  return Attention(absl::StrCat("attend/1x", scale.context, "/", HeadsText(scale), "/", tokens),
                   format, 1, tokens);
}

}  // namespace

absl::Status MeasureGpuKernels(CudaDriver& driver, bool gemm_library,
                               const KernelsBenchOptions& options, const OnResult& on_result) {
  const GpuBenchScale scale = options.quick ? kQuick : GpuBenchScale{};
  std::unique_ptr<GemmLibrary> library;
  if (gemm_library) {
    BH_ASSIGN_OR_RETURN(library, NewCublasLt(driver));
  }
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<GpuMachine> machine,
                      GpuMachine::Create(driver, std::move(library), scale));
  GpuBench bench(*machine, options.filter, on_result);
  BH_RETURN_IF_ERROR(bench.Launches());
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    BH_RETURN_IF_ERROR(bench.DecodeAttention(format));
    BH_RETURN_IF_ERROR(bench.PrefillAttention(format, machine->scale().context));
    BH_RETURN_IF_ERROR(bench.PrefillAttention(format, kFollowUpTokens));
  }
  const std::pair<WeightFormat, int> formats[] = {
      {WeightFormat::kBF16, 0}, {WeightFormat::kInt8, 128}, {WeightFormat::kInt4, 128}};
  for (const auto& [format, group_size] : formats) {
    for (const Shape& shape : ShapesOf(scale)) {
      // Quantising a vocabulary takes the host a minute.
      if (IsQuantized(format) && shape.outputs == scale.vocab) continue;
      BH_RETURN_IF_ERROR(bench.Products(shape, format, group_size));
    }
    for (const Shape& shape : ExpertShapesOf(scale)) {
      BH_RETURN_IF_ERROR(bench.Experts(shape, format, group_size));
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
