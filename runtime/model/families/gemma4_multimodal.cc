// The text part of a multimodal Gemma 4.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {

Family gemma4_multimodal() {
  Family family = gemma4();
  family.spec.text_model_types = family.spec.model_type;
  family.spec.architecture = "Gemma4ForConditionalGeneration";
  family.spec.model_type = "gemma4";
  family.spec.model_prefix = "model.language_model.";
  family.spec.not_served =
      "model.vision_tower.*,model.embed_vision.*,model.audio_tower.*,model.embed_audio.*";
  return family;
}

}  // namespace bulkhead::families
