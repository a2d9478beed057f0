// Build identification.
#pragma once

#include "absl/strings/string_view.h"

namespace bulkhead {

// "0.1.0 (1a2b3c4)"; without the commit if the source was not a git checkout.
absl::string_view Version();

// "compiler: GNU 12.2.0, Release, -O3 ... | CUDA: none | commit date: 2026-11-22".
absl::string_view BuildText();

// CMAKE_CUDA_ARCHITECTURES of the build, such as "80;90"; empty without CUDA.
absl::string_view CudaArchitectures();

}  // namespace bulkhead
