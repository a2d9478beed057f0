// WeightFormats: how the matrices of a model are held.
#pragma once

#include <string>

#include "memory/weight_format.h"
#include "shard/model_config.h"

namespace bulkhead {

struct WeightFormats {
  WeightFormat layers = WeightFormat::kF32;  // the layers' matrices
  int group_size = 0;                        // of the layers', where quantised
  bool act_order = false;                    // their groups have an index
  ScaleFormat scales = ScaleFormat::kF16;    // of the layers'; those of tables are in f16
  WeightFormat tables = WeightFormat::kF32;  // embedding and lm_head
  int table_group_size = 0;

  // All of them as numbers of `dtype`.
  static WeightFormats Of(DType dtype);
  // As the checkpoint holds them; what is not quantised there as numbers of `dtype`.
  static WeightFormats StoredBy(const ModelConfig& config, DType dtype);
  // Quantised when they are loaded, in groups of `group_size` inputs (0: 128); the tables of kInt4
  // are in int8.
  static WeightFormats AtLoad(WeightFormat format, int group_size = 0);
  bool operator==(const WeightFormats&) const = default;
};
// What the checkpoint's scales are held in.
ScaleFormat ScalesOf(const ModelConfig& config);
// "bfloat16"; "int4 in groups of 128, tables float16".
std::string WeightFormatsText(const WeightFormats& formats);

}  // namespace bulkhead
