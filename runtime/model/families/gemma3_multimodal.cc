// The text part of a multimodal Gemma 3.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {

Family gemma3_multimodal() {
  Family family = gemma3();
  family.spec.text_model_types = family.spec.model_type;
  family.spec.architecture = "Gemma3ForConditionalGeneration";
  family.spec.model_type = "gemma3";
  family.spec.prefix = "language_model.";
  family.spec.not_served = "vision_tower.*,multi_modal_projector.*";
  return family;
}

}  // namespace bulkhead::families
