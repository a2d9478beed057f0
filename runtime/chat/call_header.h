// The formats of tool calls, and the header before the JSON of a call in some of them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// kDeepSeek is V3 and V3.1, kHunyuan A13B and the dense models: the variants are distinguished as
// they arrive.
enum class ToolFormat {
  kNone,
  kHermes,
  kQwen3Coder,
  kSeedOss,
  kMiniMaxM2,
  kLlama3Json,
  kMistral,
  kGranite,
  kPhi4Mini,
  kCohere,
  kGemma4,
  kFunctionGemma,
  kDeepSeek,
  kGlm45,
  kHunyuan,
  kKimiK2,
  kPythonic,
  kOlmo3,
  kLfm2,
  kHarmony
};

// Whether a function's name may contain `c`.
bool IsInFunctionName(char c);

struct CallHeader {
  std::string name;  // empty: not a header
  std::string id;    // empty: the format has none
};
// Reads the text between a call's marker and the { of its arguments (Mistral, DeepSeek, Kimi,
// Gemma, Hunyuan).
CallHeader ReadCallHeader(ToolFormat format, absl::string_view header);

}  // namespace bulkhead
