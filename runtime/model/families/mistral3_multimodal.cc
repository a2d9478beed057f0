// The text part of a multimodal Mistral 3 (Mistral Small 3.1 and later, Ministral 3).
#include "runtime/model/family.h"

namespace bulkhead::families {

Family ministral3();
Family mistral();

Family mistral3_multimodal() {
  Family family = ministral3();
  family.spec.architecture = "Mistral3ForConditionalGeneration";
  family.spec.model_type = "mistral3";
  // As in transformers a text_config that names no type is of Mistral.
  family.spec.read_config = [](ConfigFields& fields, ModelConfig& config) {
    const bool is_ministral = fields.String("model_type").value_or("mistral") == "ministral3";
    (is_ministral ? ministral3() : mistral()).spec.read_config(fields, config);
  };
  family.spec.text_model_types = "mistral,ministral3";
  family.spec.prefix = "language_model.";
  family.spec.not_served = "vision_tower.*,multi_modal_projector.*";
  return family;
}

}  // namespace bulkhead::families
