#include "launcher/planning/embedding_config.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxBytes = 1'000'000;

// The string that `json` has as `name`, or "".
std::string TextOf(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::Status CheckPooling(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxBytes));
  BH_ASSIGN_OR_RETURN(const nlohmann::json config, ParseJsonObject(text, path));
  std::vector<std::string> modes;
  if (const auto mode = config.find("pooling_mode"); mode != config.end() && mode->is_string()) {
    modes.push_back(mode->get<std::string>());
  }
  constexpr absl::string_view kPrefix = "pooling_mode_";
  for (const auto& [key, value] : config.items()) {
    if (absl::StartsWith(key, kPrefix) && value == true)
      modes.push_back(key.substr(kPrefix.size()));
  }
  if (modes.size() == 1 && modes[0] == "lasttoken") return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(path, ": pooling of '", absl::StrJoin(modes, "', '"),
                                               "' is not supported; only lasttoken is"));
}

// Reads the modules in order; sets what they do to the last hidden state.
absl::Status ReadModules(const std::string& dir, bool* normalizes) {
  const std::string path = dir + "/modules.json";
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        "it has no modules.json, in which sentence-transformers describes how a model embeds");
  }
  BH_RETURN_IF_ERROR(text.status());
  // A list, which is no object.
  BH_ASSIGN_OR_RETURN(const nlohmann::json file,
                      ParseJsonObject(absl::StrCat("{\"modules\":", *text, "}"), path));
  const nlohmann::json& modules = file["modules"];
  if (!modules.is_array()) return absl::InvalidArgumentError(path + ": is not a list of modules");
  bool pools = false;
  for (const nlohmann::json& module : modules) {
    const std::vector<std::string> words = absl::StrSplit(TextOf(module, "type"), '.');
    const std::string& name = words.back();
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      *normalizes = true;
      continue;
    }
    const std::string folder = TextOf(module, "path");
    if (name != "Pooling" || folder.empty() || absl::StrContains(folder, "..")) {
      return absl::UnimplementedError(
          absl::StrCat(path, ": a module of type '", name, "' in '", folder, "' is not supported"));
    }
    BH_RETURN_IF_ERROR(CheckPooling(absl::StrCat(dir, "/", folder, "/config.json")));
    pools = true;
  }
  return pools ? absl::OkStatus() : absl::UnimplementedError(path + ": has no pooling");
}

}  // namespace

EmbeddingRules ReadEmbeddingRules(const std::string& dir, int64_t hidden_size) {
  EmbeddingRules rules;
  rules.normalizes = false;
  const absl::Status read = ReadModules(dir, &rules.normalizes);
  if (read.ok()) {
    rules.size = static_cast<int>(hidden_size);
  } else {
    rules.why_not = std::string(read.message());
  }
  return rules;
}

}  // namespace bulkhead
