// Where a model lies: a folder, or the local Hugging Face cache. No network.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace bulkhead {

// The caches in the order in which they are searched: HF_HUB_CACHE, HF_HOME/hub,
// ~/.cache/huggingface/hub.
std::vector<std::string> HubCacheDirs();

// The folder that `model` means: itself when it is one, else, for a name such as org/name, the
// snapshot that its main branch points to in one of `cache_dirs`. NOT_FOUND with exit code 3,
// naming where was looked and the command that downloads it.
absl::StatusOr<std::string> ResolveModelPath(const std::string& model,
                                             const std::vector<std::string>& cache_dirs);
absl::StatusOr<std::string> ResolveModelPath(const std::string& model);

}  // namespace bulkhead
