#include "shard/quantized_tensors.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/status.h"
#include "shard/weight_formats.h"

namespace bulkhead {
namespace {

using Method = QuantizationConfig::Method;

// Suffixes of the module's name (kMxfp4: of the tensor's); null if there is none.
struct Parts {
  const char* codes;
  const char* scales;
  const char* zeros = nullptr;
  const char* g_idx = nullptr;
  // These may be missing; scales of inputs, keys and values are not read.
  const char* shape = nullptr;
  const char* input_scale = nullptr;
  const char* k_scale = nullptr;
  const char* v_scale = nullptr;
  const char* global_scale = nullptr;
};

Parts PartsOf(const QuantizationConfig& config) {
  switch (config.method) {
    case Method::kAwq:
      return {".qweight", ".scales", ".qzeros"};
    case Method::kGptq:
      return {".qweight", ".scales", ".qzeros", ".g_idx"};
    case Method::kPackQuantized:
      return {".weight_packed", ".weight_scale", config.symmetric ? nullptr : ".weight_zero_point",
              config.act_order ? ".weight_g_idx" : nullptr, ".weight_shape"};
    case Method::kIntQuantized:
      return {".weight", ".weight_scale"};
    case Method::kMxfp4PackQuantized:
      return {".weight_packed", ".weight_scale"};
    case Method::kNvfp4PackQuantized:
      return {.codes = ".weight_packed",
              .scales = ".weight_scale",
              .input_scale = ".input_global_scale",
              .global_scale = ".weight_global_scale"};
    case Method::kModelOptNvfp4:
      return {.codes = ".weight",
              .scales = ".weight_scale",
              .input_scale = ".input_scale",
              .k_scale = ".k_scale",
              .v_scale = ".v_scale",
              .global_scale = ".weight_scale_2"};
    case Method::kFloatQuantized:
      return {.codes = ".weight",
              .scales = ".weight_scale",
              .input_scale = ".input_scale",
              .k_scale = ".k_scale",
              .v_scale = ".v_scale"};
    case Method::kFp8:
      return {".weight", ".weight_scale_inv"};
    default:
      return {"_blocks", "_scales"};
  }
}

// Outputs in the file's tensor, which may hold the row's matrix transposed.
int64_t OutputsOf(const TensorRow& row) {
  return IsTransposedInCodes(row) ? row.file_inputs : row.FileSize();
}
int64_t InputsOf(const TensorRow& row) {
  return IsTransposedInCodes(row) ? row.FileSize() : row.cols;
}

// Shapes and number formats of a weight's tensors.
struct Layout {
  std::vector<int64_t> codes, scales, zeros;
  const char* codes_format;
  const char* scales_format;  // null: any float format
};

Layout LayoutOf(const TensorRow& row, const ModelConfig& config) {
  const QuantizationConfig& quantization = config.quantization;
  const int64_t outputs = OutputsOf(row);
  const int64_t inputs = InputsOf(row);
  const int64_t groups = quantization.group_size == 0 ? 1 : inputs / quantization.group_size;
  const int64_t words = CeilDiv(outputs, 32 / quantization.bits);
  const char* half = ScalesOf(config) == ScaleFormat::kF16 ? "F16" : "BF16";
  switch (quantization.method) {
    case Method::kAwq:
      return {{inputs, words}, {groups, outputs}, {groups, words}, "I32", half};
    case Method::kGptq:
      return {{inputs * quantization.bits / 32, outputs},
              {groups, outputs},
              {groups, words},
              "I32",
              half};
    case Method::kPackQuantized:
      return {{outputs, CeilDiv(inputs * quantization.bits, 32)},
              {outputs, groups},
              {words, groups},
              "I32",
              half};
    case Method::kIntQuantized:
      return {{outputs, inputs}, {outputs, groups}, {}, "I8", half};
    case Method::kFloatQuantized:
    case Method::kFp8: {
      const int64_t of_inputs = quantization.group_size == 0 ? 1 : CeilDiv(inputs, 128);
      const std::vector<int64_t> scales =
          quantization.group_outputs == 0
              ? std::vector<int64_t>{1}
              : std::vector<int64_t>{CeilDiv(outputs, quantization.group_outputs), of_inputs};
      return {{outputs, inputs}, scales, {}, "F8_E4M3", nullptr};
    }
    case Method::kMxfp4PackQuantized:
      return {{outputs, inputs / 2}, {outputs, groups}, {}, "U8", "U8"};
    case Method::kNvfp4PackQuantized:
    case Method::kModelOptNvfp4:
      return {{outputs, inputs / 2}, {outputs, groups}, {}, "U8", "F8_E4M3"};
    default:
      return {{row.file_experts, outputs, groups, 16},
              {row.file_experts, outputs, groups},
              {},
              "U8",
              "U8"};
  }
}

// Checks what the config cannot state about this weight.
absl::Status CheckSizes(const TensorRow& row, const ModelConfig& config, const std::string& codes) {
  const QuantizationConfig& quantization = config.quantization;
  const bool words_of_outputs =
      quantization.method == Method::kAwq || quantization.method == Method::kGptq;
  if ((row.file_experts > 0) != (quantization.method == Method::kMxfp4)) {
    return absl::UnimplementedError(absl::StrCat(
        "'", codes, "': experts that share one tensor are read in mxfp4 as gpt-oss has it alone"));
  }
  if (quantization.method == Method::kFp8 || quantization.method == Method::kFloatQuantized) {
    return absl::OkStatus();  // the last blocks may be partial
  }
  // Whole words of codes, and whole groups.
  const int word_codes = 32 / quantization.bits;
  const bool words_of_inputs =
      quantization.method == Method::kPackQuantized || quantization.method == Method::kGptq;
  const int64_t group = quantization.group_size > 0 ? quantization.group_size
                        : words_of_inputs           ? word_codes
                                                    : 1;
  const int64_t outputs = OutputsOf(row);
  const int64_t inputs = InputsOf(row);
  if (inputs % group == 0 && (!words_of_outputs || outputs % word_codes == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", codes, "' would be [", outputs, ", ", inputs, "], which ",
                   quantization.group_size > 0 ? "groups" : "words", " of ", group, " inputs",
                   words_of_outputs ? absl::StrCat(" and words of ", word_codes, " outputs") : "",
                   " do not divide"));
}

// Scales in any float format.
absl::StatusOr<LocatedTensor> FindScales(const TensorIndex& index, const std::string& name,
                                         const Layout& layout) {
  if (layout.scales_format != nullptr) {
    return index.FindTensor(name, layout.scales, layout.scales_format);
  }
  for (const char* format : {"BF16", "F16", "F32"}) {
    auto found = index.FindTensor(name, layout.scales, format);
    if (!found.ok() && layout.scales == std::vector<int64_t>{1}) {
      found = index.FindTensor(name, {}, format);
    }
    if (found.ok()) return found;
  }
  return index.FindTensor(name, layout.scales, "F32");
}

// Checks that weight_shape agrees with the config.
absl::Status CheckShapeTensor(const TensorIndex& index, const std::string& name, int64_t outputs,
                              int64_t inputs) {
  const absl::StatusOr<LocatedTensor> shape = index.FindTensor(name, {2}, "I64");
  if (absl::IsNotFound(shape.status())) return absl::OkStatus();
  BH_RETURN_IF_ERROR(shape.status());
  int64_t sizes[2];
  BH_RETURN_IF_ERROR(
      shape->file->ReadAt(shape->entry->begin, sizeof(sizes), reinterpret_cast<std::byte*>(sizes)));
  if (sizes[0] == outputs && sizes[1] == inputs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(shape->file->path(), ": tensor '", name, "' is [", sizes[0], ", ", sizes[1],
                   "]; config.json demands [", outputs, ", ", inputs, "]"));
}

// The factor of a tensor's scales: its global scale, or (`divides`) the reciprocal of that, rounded
// to f32.
absl::StatusOr<float> ReadFactor(const TensorIndex& index, const std::string& name, bool divides) {
  absl::StatusOr<LocatedTensor> tensor = index.FindTensor(name, {}, "F32");
  if (!tensor.ok()) tensor = index.FindTensor(name, {1}, "F32");
  BH_RETURN_IF_ERROR(tensor.status());
  float global;
  BH_RETURN_IF_ERROR(tensor->file->ReadAt(tensor->entry->begin, sizeof(global),
                                          reinterpret_cast<std::byte*>(&global)));
  const float factor = divides ? 1 / global : global;
  if (std::isnormal(global) && global > 0 && std::isnormal(factor)) return factor;
  return absl::DataLossError(absl::StrCat(tensor->file->path(), ": tensor '", name, "' is ", global,
                                          "; a factor of all scales must be positive"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> QuantizedTensors::ReadGroupIndex(Range cols) const {
  if (g_idx.entry == nullptr) return std::vector<int32_t>();
  std::vector<int32_t> index(cols.size());
  BH_RETURN_IF_ERROR(g_idx.file->ReadAt(g_idx.entry->begin + cols.begin * 4, cols.size() * 4,
                                        reinterpret_cast<std::byte*>(index.data())));
  const int64_t groups = inputs / group_size;
  for (int64_t i = 0; i < cols.size(); ++i) {
    const int64_t input = cols.begin + i;
    const bool wrong = config.act_order ? index[i] < 0 || index[i] >= groups
                                        : index[i] != FileGroup(input / group_size);
    if (!wrong) continue;
    return absl::DataLossError(absl::StrCat(
        g_idx.file->path(), ": tensor '", g_idx.entry->name, "' puts input ", input, " in group ",
        index[i],
        config.act_order ? absl::StrCat("; there are ", groups)
                         : ", out of order, and quantization_config.desc_act is false"));
  }
  if (!config.act_order) index.clear();
  return index;
}

bool IsHeldQuantized(const TensorRow& row, const ModelConfig& config) {
  return config.quantization.method != Method::kNone &&
         (row.held_as == HeldAs::kLayerMatrix || row.held_as == HeldAs::kDequantized);
}

bool IsTransposedInCodes(const TensorRow& row) {
  return row.is_transposed && row.held_as == HeldAs::kDequantized;
}

std::vector<std::string> QuantizedNamesOf(const TensorRow& row, const ModelConfig& config) {
  const Parts parts = PartsOf(config.quantization);
  std::vector<std::string> names;
  for (const char* part : {parts.codes, parts.zeros, parts.scales, parts.global_scale, parts.g_idx,
                           parts.shape, parts.input_scale, parts.k_scale, parts.v_scale}) {
    if (part != nullptr) names.push_back(absl::StrCat(row.Module(), part));
  }
  return names;
}

absl::StatusOr<QuantizedTensors> FindQuantized(const TensorIndex& index, const TensorRow& row,
                                               const ModelConfig& config) {
  const Parts parts = PartsOf(config.quantization);
  const auto name = [&](const char* part) { return absl::StrCat(row.Module(), part); };
  BH_RETURN_IF_ERROR(CheckSizes(row, config, name(parts.codes)));
  const Layout layout = LayoutOf(row, config);
  QuantizedTensors tensors;
  tensors.config = config.quantization;
  tensors.group_size = WeightFormats::StoredBy(config, DType::kF32).group_size;
  tensors.outputs = OutputsOf(row) * std::max(1, row.file_experts);
  tensors.inputs = InputsOf(row);
  BH_ASSIGN_OR_RETURN(tensors.codes,
                      index.FindTensor(name(parts.codes), layout.codes, layout.codes_format));
  if (parts.zeros != nullptr) {
    BH_ASSIGN_OR_RETURN(tensors.zeros, index.FindTensor(name(parts.zeros), layout.zeros, "I32"));
  }
  BH_ASSIGN_OR_RETURN(tensors.scales, FindScales(index, name(parts.scales), layout));
  if (parts.global_scale != nullptr) {
    const bool divides = config.quantization.method == Method::kNvfp4PackQuantized;
    BH_ASSIGN_OR_RETURN(tensors.factor, ReadFactor(index, name(parts.global_scale), divides));
  }
  if (parts.shape != nullptr) {
    BH_RETURN_IF_ERROR(CheckShapeTensor(index, name(parts.shape), tensors.outputs, tensors.inputs));
  }
  if (parts.g_idx == nullptr) return tensors;
  absl::StatusOr<LocatedTensor> g_idx =
      index.FindTensor(name(parts.g_idx), {tensors.inputs}, "I32");
  if (g_idx.ok()) {
    tensors.g_idx = *g_idx;
  } else if (!absl::IsNotFound(g_idx.status()) || tensors.config.act_order) {
    return g_idx.status();
  }
  return tensors;
}

}  // namespace bulkhead
