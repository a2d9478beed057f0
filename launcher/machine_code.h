// For which GPUs a build has machine code of its kernels.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// What to log before kernels are loaded onto a GPU of this compute capability: that the driver has
// to compile them, in a build for `architectures` (the value of CMAKE_CUDA_ARCHITECTURES). Empty:
// the build's machine code runs there.
std::string CompilesAtStart(absl::string_view architectures, int major, int minor);

}  // namespace bulkhead
