// WeightFormats: how the matrices of a model are held.
#pragma once

#include <string>

#include "memory/weight_format.h"
#include "shard/model_config.h"

namespace bulkhead {

struct WeightFormats {
  WeightFormat layers = WeightFormat::kF32;  // the layers' matrices
  int group_size = 0;                        // of the layers, if quantised
  bool act_order = false;                    // layers' groups have an index
  ScaleFormat scales = ScaleFormat::kF16;    // of the layers; tables have f16 scales
  WeightFormat tables = WeightFormat::kF32;  // embedding and lm_head
  int table_group_size = 0;

  // All as floats of `dtype`.
  static WeightFormats Of(DType dtype);
  // As the checkpoint holds them; unquantised ones as floats of `dtype`.
  static WeightFormats StoredBy(const ModelConfig& config, DType dtype);
  // Quantised at load, in groups of `group_size` inputs (0: 128); with kInt4 the tables are in
  // int8.
  static WeightFormats AtLoad(WeightFormat format, int group_size = 0);
  bool operator==(const WeightFormats&) const = default;
};
// The format in which the checkpoint's scales are held.
ScaleFormat ScalesOf(const ModelConfig& config);
// "bfloat16"; "int4 in groups of 128, tables float16".
std::string WeightFormatsText(const WeightFormats& formats);

}  // namespace bulkhead
