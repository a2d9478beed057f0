#include "launcher/model_path.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 192;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// One part of a hub name or a revision; never a path.
bool IsNamePart(absl::string_view part) {
  if (part.empty() || part.front() == '.' || part.front() == '-') return false;
  for (const char c : part) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

// "name" or "org/name".
bool IsHubName(absl::string_view name) {
  if (name.size() > kLongestName) return false;
  const size_t slash = name.find('/');
  if (slash == absl::string_view::npos) return IsNamePart(name);
  return IsNamePart(name.substr(0, slash)) && IsNamePart(name.substr(slash + 1));
}

absl::Status NotFound(const std::string& message) {
  return WithExitCode(absl::NotFoundError(message), ExitCode::kModelRefused);
}

}  // namespace

std::vector<std::string> HubCacheDirs() {
  std::vector<std::string> dirs;
  const auto add = [&dirs](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') dirs.push_back(absl::StrCat(value, below));
  };
  add("HF_HUB_CACHE", "");
  add("HF_HOME", "/hub");
  add("HOME", "/.cache/huggingface/hub");
  return dirs;
}

absl::StatusOr<std::string> ResolveModelPath(const std::string& model,
                                             const std::vector<std::string>& cache_dirs) {
  if (IsFolder(model)) return model;
  std::error_code error;
  const bool is_gguf = absl::EndsWithIgnoreCase(model, ".gguf");
  if (is_gguf || fs::exists(model, error)) {
    return NotFound(absl::StrCat(
        model, is_gguf ? " is a GGUF file, which is not read; give the folder with config.json and "
                         "safetensors that it was made from"
                       : " is not a folder; give the folder that holds config.json"));
  }
  if (absl::StartsWith(model, "-")) {
    return NotFound(absl::StrCat("no such model folder: ", model,
                                 "; a flag and its value are two arguments, or --flag=value"));
  }
  if (!IsHubName(model)) return NotFound(absl::StrCat("no such model folder: ", model));
  const std::string entry = absl::StrCat("models--", absl::StrReplaceAll(model, {{"/", "--"}}));
  std::vector<std::string> looked;
  for (const std::string& dir : cache_dirs) {
    const std::string root = absl::StrCat(dir, "/", entry);
    looked.push_back(root);
    std::ifstream ref(absl::StrCat(root, "/refs/main"));
    std::string revision;
    if (!std::getline(ref, revision)) continue;
    revision = std::string(absl::StripAsciiWhitespace(revision));
    if (!IsNamePart(revision)) return NotFound(absl::StrCat(root, "/refs/main names no revision"));
    const std::string snapshot = absl::StrCat(root, "/snapshots/", revision);
    if (IsFolder(snapshot)) return snapshot;
    looked.back() = snapshot;
  }
  if (looked.empty()) {
    return NotFound(absl::StrCat("no folder ", model, ", and no Hugging Face cache; set HF_HOME"));
  }
  return NotFound(
      absl::StrCat("no folder ", model, ", and it is not in the Hugging Face cache (looked for ",
                   absl::StrJoin(looked, ", "), "); download it with: hf download ", model));
}

absl::StatusOr<std::string> ResolveModelPath(const std::string& model) {
  return ResolveModelPath(model, HubCacheDirs());
}

}  // namespace bulkhead
