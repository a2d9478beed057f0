// Samples of a file's tensors, to compare copies of it (see Checkpoint::SampleFiles).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "shard/safetensors.h"

namespace bulkhead {

// DATA_LOSS when the file cannot be read.
absl::StatusOr<uint64_t> SampleTensors(const SafetensorsFile& file);

}  // namespace bulkhead
