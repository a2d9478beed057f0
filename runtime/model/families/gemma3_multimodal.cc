// The text part of a multimodal Gemma 3.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {

Family gemma3_multimodal() {
  return TextPart(gemma3(), "Gemma3ForConditionalGeneration", "gemma3", "language_model.", "model.",
                  "vision_tower.*,multi_modal_projector.*");
}

}  // namespace bulkhead::families
