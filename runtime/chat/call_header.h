// The formats of tool calls, and what stands before the JSON of a call in some of them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// kDeepSeek is V3 and V3.1, kHunyuan A13B and the dense models: the two are told apart as they
// come.
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

// Whether `c` may be a character of a function's name.
bool IsInFunctionName(char c);

struct CallHeader {
  std::string name;  // empty: it is none
  std::string id;    // empty: the format has none
};
// Of the text between a call's marker and the { of its arguments (Mistral, DeepSeek, Kimi, Gemma,
// Hunyuan).
CallHeader ReadCallHeader(ToolFormat format, absl::string_view header);

}  // namespace bulkhead
