// The text part of a multimodal Llama 4.
#include "runtime/model/families/llama4.h"

namespace bulkhead::families {

Family llama4_multimodal() {
  return TextPart(llama4(), "Llama4ForConditionalGeneration", "llama4", "language_model.", "model.",
                  "vision_model.*,multi_modal_projector.*");
}

}  // namespace bulkhead::families
