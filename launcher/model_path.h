// Finds a model: a folder, or the local Hugging Face cache. No network.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace bulkhead {

// The caches in search order: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
std::vector<std::string> HubCacheDirs();

// The folder of `model`: itself if it is a folder; otherwise, for a name such as org/name, the
// snapshot of its main branch in one of `cache_dirs`. NOT_FOUND with exit code 3, naming the
// folders searched and the command that downloads it.
absl::StatusOr<std::string> ResolveModelPath(const std::string& model,
                                             const std::vector<std::string>& cache_dirs);
absl::StatusOr<std::string> ResolveModelPath(const std::string& model);

}  // namespace bulkhead
