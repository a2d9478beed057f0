// The text part of a multimodal Mistral 3 (Mistral Small 3.1 and later, Ministral 3).
#include "runtime/model/family.h"

namespace bulkhead::families {

Family ministral3();

Family mistral3_multimodal() {
  Family family = ministral3();
  family.spec.architecture = "Mistral3ForConditionalGeneration";
  family.spec.model_type = "mistral3";
  family.spec.text_model_types = "mistral,ministral3";
  family.spec.prefix = "language_model.";
  family.spec.not_served = "vision_tower.*,multi_modal_projector.*";
  return family;
}

}  // namespace bulkhead::families
