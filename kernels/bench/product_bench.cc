#include "kernels/bench/product_bench.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "memory/fp8.h"

namespace bulkhead {
namespace {

constexpr double kTurnFlops = 1e9;                    // per thread, of a product of many rows
constexpr int64_t kWeightBytes = int64_t{512} << 20;  // of all copies of a weight together
constexpr int64_t kQuickWeightBytes = int64_t{8} << 20;

struct Shape {
  const char* name;
  int64_t inputs;
  int64_t outputs;
  int num_slices;
};

// A small Llama: hidden 1024, 16 heads over 8 KV heads, FFN 2816, vocabulary 32000.
constexpr Shape kShapes[] = {{"qkv", 1024, 2048, 1},
                             {"o", 1024, 1024, 8},
                             {"gate_up", 1024, 5632, 1},
                             {"down", 2816, 1024, 8},
                             {"lm_head", 1024, 32000, 1}};

struct Format {
  WeightFormat format;
  int group_size;
  ScaleFormat scales = ScaleFormat::kF16;
};
constexpr Format kFormats[] = {{WeightFormat::kF32, 0},
                               {WeightFormat::kBF16, 0},
                               {WeightFormat::kF16, 0},
                               {WeightFormat::kInt8, 128},
                               {WeightFormat::kInt4, 32},
                               {WeightFormat::kInt4, 128},
                               {WeightFormat::kMxfp4, 32, ScaleFormat::kE8M0},
                               {WeightFormat::kNvfp4, 16, ScaleFormat::kE4M3},
                               {WeightFormat::kFp8, 128, ScaleFormat::kF32}};

struct Activation {
  ActivationDType dtype;
  const char* name;
};
constexpr Activation kActivations[] = {{ActivationDType::kInt8, "int8"},
                                       {ActivationDType::kBf16, "bf16"},
                                       {ActivationDType::kBf16Amx, "bf16-amx"},
                                       {ActivationDType::kF32, "f32"}};

// Copies of one weight, used in rotation, so that each is read from memory.
struct Weights {
  Buffer memory;
  std::vector<Linear> copies;
};

// A row of fp4 or fp8 as in a checkpoint: `numbers` in codes, and equal scales. Empty for other
// formats.
struct CodeRow {
  CodeRow(const Format& format, const std::vector<float>& numbers) {
    if (!IsFp4(format.format) && format.format != WeightFormat::kFp8) return;
    const size_t groups = numbers.size() / format.group_size;
    for (size_t i = 0; i < numbers.size(); ++i) {
      codes.push_back(format.format == WeightFormat::kFp8 ? E4m3OfF32(numbers[i], kScale) : i % 16);
    }
    scales.assign(groups, format.scales == ScaleFormat::kE8M0 ? 120 : E4m3OfF32(100, 1));
    f32_scales.assign(groups, kScale);
    rows = {.rows = 1, .codes = codes.data()};
    if (format.scales == ScaleFormat::kF32) {
      rows.f32_scales = f32_scales.data();
    } else {
      rows.scales = scales.data();
    }
    if (format.scales == ScaleFormat::kE4M3) rows.factors = &kScale;
  }

  static constexpr float kScale = 0.001F;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<float> f32_scales;
  QuantizedRows rows;
};

Weights MakeWeights(Machine& machine, const Shape& shape, const Format& format, bool quick) {
  LinearShape linear{shape.outputs, shape.inputs, format.format, {}};
  linear.groups.size = format.group_size;
  linear.groups.scales = format.scales;
  for (int i = 0; i <= shape.num_slices; ++i) {
    linear.k_borders.push_back(shape.inputs * i / shape.num_slices);
  }
  const int64_t bytes = machine.BackendOf(ActivationDType::kF32).PackedBytes(linear);
  const int64_t count = std::max<int64_t>(1, (quick ? kQuickWeightBytes : kWeightBytes) / bytes);
  Weights weights;
  weights.memory = std::move(machine.device->Allocate(bytes * count)).value();
  std::memset(weights.memory.data(), 0, bytes * count);
  std::vector<float> row(shape.inputs);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 0.01F * (static_cast<float>(i % 17) - 8);
  const ConstMatrixView view(reinterpret_cast<const std::byte*>(row.data()), DType::kF32, 1,
                             shape.inputs);
  // These formats only come from checkpoints.
  const CodeRow code_row(format, row);
  for (int64_t i = 0; i < count; ++i) {
    weights.copies.push_back(Linear{linear, weights.memory.data() + i * bytes});
    if (i > 0) {
      std::memcpy(weights.copies[i].packed, weights.copies[0].packed, bytes);
      continue;
    }
    const auto sink = machine.BackendOf(ActivationDType::kF32).Pack(weights.copies[0]);
    for (int64_t n = 0; n < shape.outputs; ++n) {
      if (code_row.rows.codes == nullptr) {
        sink->PutRows(n, view);
      } else {
        sink->PutQuantizedRows(n, code_row.rows);
      }
    }
  }
  return weights;
}

void Measure(Machine& machine, const Shape& shape, const Weights& weights, int64_t rows,
             ActivationDType activation, bool quick, KernelResult& result) {
  Backend& backend = machine.BackendOf(activation);
  // Aligned like the program's arenas: stores that cross lines cost a tenth.
  const int64_t x_bytes = rows * shape.inputs * static_cast<int64_t>(sizeof(float));
  const int64_t out_bytes = rows * shape.outputs * static_cast<int64_t>(sizeof(float));
  const Buffer x = std::move(machine.device->Allocate(x_bytes)).value();
  const Buffer out = std::move(machine.device->Allocate(out_bytes)).value();
  const MatrixView x_view(x.data(), DType::kF32, rows, shape.inputs);
  const MatrixView out_view(out.data(), DType::kF32, rows, shape.outputs);
  std::fill_n(reinterpret_cast<float*>(x.data()), rows * shape.inputs, 0.25F);
  std::memset(out.data(), 0, out_bytes);
  const double operations = 2.0 * static_cast<double>(rows * shape.inputs * shape.outputs);
  const auto bytes = static_cast<double>(backend.PackedBytes(weights.copies[0].shape));
  const int threads = machine.pool->num_threads();
  const double turns = quick      ? 1
                       : rows < 4 ? static_cast<double>(kTurnBytes * threads) / bytes
                                  : kTurnFlops * threads / operations;
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(turns));
  std::vector<double> seconds, of_read, of_peak;
  size_t copy = 0;
  for (int round = 0; round < (quick ? 2 : kBenchRounds); ++round) {
    const double read = machine.ReadBandwidth(round);
    const double total = Seconds([&] {
      for (int64_t i = 0; i < calls; ++i) {
        backend.MatMul(x_view, weights.copies[copy++ % weights.copies.size()], out_view);
      }
    });
    seconds.push_back(total / static_cast<double>(calls));
    const double peak = machine.PeakOf(activation, rows);
    result.read_gb_per_s = std::max(result.read_gb_per_s, read);
    result.peak_gop_per_s = std::max(result.peak_gop_per_s, peak);
    of_read.push_back(bytes / seconds.back() * 1e-9 / read);
    of_peak.push_back(peak > 0 ? operations / seconds.back() * 1e-9 / peak : 0);
  }
  result.seconds = Median(seconds);
  result.gb_per_s = bytes / result.seconds * 1e-9;
  result.gop_per_s = operations / result.seconds * 1e-9;
  result.share_of_read = Median(of_read);
  result.share_of_peak = Median(of_peak);
}

}  // namespace

void MeasureProducts(Machine& machine, const KernelsBenchOptions& options,
                     const std::function<void(const KernelResult&)>& on_result) {
  for (const Format& format : kFormats) {
    for (const Shape& shape : kShapes) {
      if (options.quick && shape.outputs > 2048) continue;
      std::optional<Weights> weights;
      for (const int64_t rows : {1, 8, 16, 64, 128, 512}) {
        if (options.quick && rows > 8) continue;
        for (const auto& [activation, name] : kActivations) {
          if (activation == ActivationDType::kInt8 && !HasIntegerCodes(format.format)) continue;
          const bool in_bf16 =
              activation == ActivationDType::kBf16 || activation == ActivationDType::kBf16Amx;
          if (in_bf16 && format.format != WeightFormat::kBF16) continue;
          if (!machine.Has(activation)) continue;
          KernelResult result;
          result.name = absl::StrCat("product/", shape.name, "/", shape.inputs, "x", shape.outputs,
                                     "/", rows);
          result.format =
              absl::StrCat(std::string(WeightFormatName(format.format)),
                           format.group_size > 0 ? absl::StrCat("/", format.group_size) : "");
          result.activation = name;
          if (!absl::StartsWith(result.name, options.filter)) continue;
          if (!weights.has_value()) weights = MakeWeights(machine, shape, format, options.quick);
          Measure(machine, shape, *weights, rows, activation, options.quick, result);
          on_result(result);
        }
      }
    }
  }
}

}  // namespace bulkhead
