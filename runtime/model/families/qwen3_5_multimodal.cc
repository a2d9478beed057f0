// The text part of a multimodal Qwen3.5.
#include "runtime/model/families/qwen_hybrid.h"

namespace bulkhead::families {

Family qwen3_5_multimodal() {
  return QwenHybridText(qwen3_5(), "Qwen3_5ForConditionalGeneration", "qwen3_5");
}

}  // namespace bulkhead::families
