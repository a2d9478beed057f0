#include "kernels/packing/panel_format.h"

#include "memory/weight_format.h"

namespace bulkhead {

PanelFormat PanelFormatOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return PanelFormat::kF32;
    case WeightFormat::kBF16:
      return PanelFormat::kBf16;
    case WeightFormat::kF16:
      return PanelFormat::kF16;
    case WeightFormat::kInt8:
      return PanelFormat::kInt8;
    case WeightFormat::kInt4:
      return PanelFormat::kInt4;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return PanelFormat::kFp4;
    case WeightFormat::kFp8:
      break;
  }
  return PanelFormat::kFp8;
}

}  // namespace bulkhead
