// The text part of a multimodal Gemma 4.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {

Family gemma4_multimodal() {
  return TextPart(
      gemma4(), "Gemma4ForConditionalGeneration", "gemma4", "", "model.language_model.",
      "model.vision_tower.*,model.embed_vision.*,model.audio_tower.*,model.embed_audio.*");
}

}  // namespace bulkhead::families
