// --lora-modules: LoRA adapters by the names that requests call them by.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

inline constexpr int kMaxLoraModules = 64;

// "NAME=DIR,..." or vLLM's {"name": "NAME", "path": "DIR"}, which may have a base_model_name;
// further values, also as words after the first, are added. Duplicate names and more than
// kMaxLoraModules are refused.
Flags::Apply LoraModulesValue(std::vector<LoraModule>* modules);

// After all flags: checks that no adapter has a name of the model, and that base_model_name is one.
// `served_model_names`: values of --served-model-name; empty: the value of --model.
absl::Status CheckLoraModules(const EngineOptions& engine,
                              const std::vector<std::string>& served_model_names);

}  // namespace bulkhead
