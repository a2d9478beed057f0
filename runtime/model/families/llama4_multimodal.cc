// The text part of a multimodal Llama 4.
#include "runtime/model/families/llama4.h"

namespace bulkhead::families {

Family llama4_multimodal() {
  Family family = llama4();
  family.spec.architecture = "Llama4ForConditionalGeneration";
  family.spec.model_type = "llama4";
  family.spec.has_text_config = true;
  family.spec.prefix = "language_model.";
  family.spec.not_served = "vision_model.*,multi_modal_projector.*";
  return family;
}

}  // namespace bulkhead::families
