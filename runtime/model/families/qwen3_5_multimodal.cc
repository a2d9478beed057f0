// The text part of a multimodal Qwen3.5.
#include "runtime/model/families/qwen_hybrid.h"

namespace bulkhead::families {

Family qwen3_5_multimodal() {
  return TextPart(qwen3_5(), "Qwen3_5ForConditionalGeneration", "qwen3_5", "",
                  "model.language_model.", "model.visual.*");
}

}  // namespace bulkhead::families
