// What lies in a model's folder in place of a checkpoint that can be read.
#pragma once

#include <string>

namespace bulkhead {

// Where DIR/config.json is missing: "; DIR holds GGUF files, which are not read ...", or that it is
// an adapter and of which model; "" where nothing tells.
std::string HintForMissingConfig(const std::string& dir);
// Likewise where DIR has no safetensors.
std::string HintForMissingWeights(const std::string& dir);
// Likewise where DIR has no tokenizer.json.
std::string HintForMissingTokenizer(const std::string& dir);

}  // namespace bulkhead
