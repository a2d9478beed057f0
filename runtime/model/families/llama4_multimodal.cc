// The text part of a multimodal Llama 4.
#include "runtime/model/families/llama4.h"

namespace bulkhead::families {

Family llama4_multimodal() {
  Family family = llama4();
  family.spec.text_model_types = family.spec.model_type;
  family.spec.architecture = "Llama4ForConditionalGeneration";
  family.spec.model_type = "llama4";
  family.spec.prefix = "language_model.";
  family.spec.not_served = "vision_model.*,multi_modal_projector.*";
  return family;
}

}  // namespace bulkhead::families
