// Hints on what a model's folder holds instead of a readable checkpoint.
#pragma once

#include <string>

namespace bulkhead {

// If DIR/config.json is missing: "; DIR holds GGUF files, which are not read ...", or that it is an
// adapter and of which model; "" if unknown.
std::string HintForMissingConfig(const std::string& dir);
// The same if DIR has no safetensors.
std::string HintForMissingWeights(const std::string& dir);
// The same if DIR has no tokenizer.json.
std::string HintForMissingTokenizer(const std::string& dir);

}  // namespace bulkhead
