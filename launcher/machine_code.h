// For which GPUs a build has machine code of its kernels.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// What to log before kernels are loaded onto a GPU of this compute capability: that the driver has
// to compile them, from a build for `architectures` as CMAKE_CUDA_ARCHITECTURES has them. Empty:
// their machine code runs there.
std::string CompilesAtStart(absl::string_view architectures, int major, int minor);

}  // namespace bulkhead
