#include "shard/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;

// The alphabetically first such name in DIR, or "".
std::string FindFile(const std::string& dir, absl::string_view begin, absl::string_view end) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), last; !error && entry != last;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, begin) || !absl::EndsWith(name, end)) continue;
    if (found.empty() || name < found) found = name;
  }
  return found;
}

std::string GgufHint(const std::string& dir) {
  const std::string file = FindFile(dir, "", ".gguf");
  if (file.empty()) return "";
  return absl::StrCat("; ", file,
                      " there is a GGUF file, which is not read; give the folder with config.json "
                      "and safetensors that it was made from");
}

std::string AdapterHint(const std::string& dir) {
  const auto text = ReadSmallFile(dir + "/adapter_config.json", kMaxAdapterConfigBytes);
  if (!text.ok()) return "";
  std::string base = "its base model";
  const auto config = ParseJsonObject(*text, "adapter_config.json");
  if (config.ok()) {
    const auto name = config->find("base_model_name_or_path");
    if (name != config->end() && name->is_string()) base = JsonExcerpt(*name);
  }
  return absl::StrCat("; the folder holds an adapter (adapter_config.json) of ", base,
                      ": give that as the model, and this folder with --lora-modules NAME=DIR");
}

std::string PickleHint(const std::string& dir) {
  const std::string file = FindFile(dir, "pytorch_model", ".bin");
  if (file.empty()) return "";
  return absl::StrCat(
      "; ", file,
      " can be converted: python3 -c \"from transformers import AutoModelForCausalLM "
      "as M; M.from_pretrained('",
      dir, "', dtype='auto').save_pretrained('OUT')\"");
}

std::string First(std::string first, std::string second) { return first.empty() ? second : first; }

}  // namespace

std::string HintForMissingConfig(const std::string& dir) {
  return First(AdapterHint(dir), GgufHint(dir));
}

std::string HintForMissingWeights(const std::string& dir) {
  const std::string shard = FindFile(dir, "model-", ".safetensors");
  if (!shard.empty()) return absl::StrCat("; ", shard, " is there: fetch the index as well");
  return First(PickleHint(dir), First(AdapterHint(dir), GgufHint(dir)));
}

std::string HintForMissingTokenizer(const std::string& dir) {
  if (FindFile(dir, "tokenizer", ".model").empty()) return "";
  return absl::StrCat(
      "; one can be made of tokenizer.model: python3 -c \"from transformers import "
      "AutoTokenizer as T; T.from_pretrained('",
      dir, "').save_pretrained('", dir, "')\"");
}

}  // namespace bulkhead
