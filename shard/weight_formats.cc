#include "shard/weight_formats.h"

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

// Inputs of a group that is quantised at load.
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
  formats.layers = WeightFormat::kInt4;
  formats.group_size = config.quantization.group_size;
  formats.act_order = config.quantization.act_order;
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
