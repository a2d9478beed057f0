// The text part of a multimodal Mistral 3 (Mistral Small 3.1 and later, Ministral 3).
#include "runtime/model/family.h"

namespace bulkhead::families {

Family ministral3();
Family mistral();

Family mistral3_multimodal() {
  Family family = TextPart(ministral3(), "Mistral3ForConditionalGeneration", "mistral3",
                           "language_model.", "model.", "vision_tower.*,multi_modal_projector.*");
  // As in transformers, a text_config without a type is Mistral's.
  family.spec.read_config = [](ConfigFields& fields, ModelConfig& config) {
    const bool is_ministral = fields.String("model_type").value_or("mistral") == "ministral3";
    (is_ministral ? ministral3() : mistral()).spec.read_config(fields, config);
  };
  family.spec.text_model_types = "mistral,ministral3";
  return family;
}

}  // namespace bulkhead::families
