// Kimi K2: the arithmetic of DeepSeek V3, with more experts and fewer heads.
#include "runtime/model/families/deepseek.h"

namespace bulkhead::families {

Family kimi_k2() { return DeepseekLike("DeepseekV3ForCausalLM", "kimi_k2", ReadDeepseekV3Fields); }

}  // namespace bulkhead::families
