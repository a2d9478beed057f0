#include "shard/weight_formats.h"

#include "absl/strings/str_cat.h"
#include "shard/quantization_config.h"

namespace bulkhead {
namespace {

// Inputs per group when quantising at load.
constexpr int kGroupAtLoad = 128;

}  // namespace

WeightFormats WeightFormats::Of(DType dtype) {
  WeightFormats formats;
  formats.layers = formats.tables = WeightFormatOf(dtype);
  return formats;
}

WeightFormats WeightFormats::StoredBy(const ModelConfig& config, DType dtype) {
  WeightFormats formats = Of(dtype);
  if (config.quantization.method == QuantizationConfig::Method::kNone) return formats;
  const QuantizationConfig& quantization = config.quantization;
  formats.scales = ScalesOf(config);
  formats.layers = formats.scales == ScaleFormat::kE8M0   ? WeightFormat::kMxfp4
                   : formats.scales == ScaleFormat::kE4M3 ? WeightFormat::kNvfp4
                   : formats.scales == ScaleFormat::kF32  ? WeightFormat::kFp8
                   : quantization.bits == 8               ? WeightFormat::kInt8
                                                          : WeightFormat::kInt4;
  // A wider group is held as several with one scale.
  formats.group_size =
      formats.layers == WeightFormat::kNvfp4 || IsGroupSize(quantization.group_size)
          ? quantization.group_size
          : kMaxHeldGroup;
  formats.act_order = quantization.act_order;
  return formats;
}

WeightFormats WeightFormats::AtLoad(WeightFormat format, int group_size) {
  WeightFormats formats;
  formats.layers = format;
  formats.group_size = group_size > 0 ? group_size : kGroupAtLoad;
  formats.tables = WeightFormat::kInt8;
  formats.table_group_size = format == WeightFormat::kInt8 ? formats.group_size : kGroupAtLoad;
  return formats;
}

ScaleFormat ScalesOf(const ModelConfig& config) {
  using Method = QuantizationConfig::Method;
  const Method method = config.quantization.method;
  if (method == Method::kMxfp4 || method == Method::kMxfp4PackQuantized) return ScaleFormat::kE8M0;
  if (method == Method::kNvfp4PackQuantized || method == Method::kModelOptNvfp4) {
    return ScaleFormat::kE4M3;
  }
  if (method == Method::kFp8 || method == Method::kFloatQuantized) return ScaleFormat::kF32;
  if (method == Method::kAwq || method == Method::kGptq) return ScaleFormat::kF16;
  return config.dtype == DType::kF16 ? ScaleFormat::kF16 : ScaleFormat::kBF16;
}

std::string WeightFormatsText(const WeightFormats& formats) {
  std::string text(WeightFormatName(formats.layers));
  if (!IsQuantized(formats.layers)) return text;
  absl::StrAppend(&text, " in groups of ", formats.group_size,
                  formats.act_order ? " by index" : "");
  if (formats.tables != formats.layers || formats.table_group_size != formats.group_size) {
    absl::StrAppend(&text, ", tables ", WeightFormatName(formats.tables));
  }
  return text;
}

}  // namespace bulkhead
