// OLMo 3: OLMo 2 with a sliding window in three layers of four; only the fourth has YaRN.
#include "runtime/model/families/olmo2.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadOlmo2Fields(fields, config);
  ReadWindow(fields, {.window = 4096, .pattern = 4}, config);
}

}  // namespace

Family olmo3() {
  Family family = olmo2();
  family.spec.architecture = "Olmo3ForCausalLM";
  family.spec.model_type = "olmo3";
  family.spec.read_config = ReadConfig;
  family.spec.rope = {.theta = 5e5, .window_theta = 5e5, .window_has_theta = true};
  return family;
}

}  // namespace bulkhead::families
