#include "shard/weight_samples.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "shard/weight_loader.h"

namespace bulkhead {
namespace {

struct Extent {
  int64_t begin = 0;
  int64_t bytes = 0;
};

void AddSamples(const TensorEntry& tensor, std::vector<Extent>& extents) {
  constexpr int64_t kSamples = Checkpoint::kSamplesPerTensor;
  constexpr int64_t kBytes = Checkpoint::kSampleBytes;
  if (tensor.bytes <= kSamples * kBytes) {
    extents.push_back({tensor.begin, tensor.bytes});
    return;
  }
  for (int64_t i = 0; i < kSamples; ++i) {
    extents.push_back({tensor.begin + (tensor.bytes - kBytes) * i / (kSamples - 1), kBytes});
  }
}

}  // namespace

absl::StatusOr<uint64_t> SampleTensors(const SafetensorsFile& file) {
  std::vector<Extent> extents;
  for (const TensorEntry& tensor : file.tensors()) AddSamples(tensor, extents);
  // Read ahead: the waits for the disk would otherwise add up.
  for (const Extent& extent : extents) file.file().WillRead(extent.begin, extent.bytes);
  Digest digest;
  std::string sample;
  for (const Extent& extent : extents) {
    sample.resize(extent.bytes);
    BH_RETURN_IF_ERROR(file.file().ReadAt(extent.begin, extent.bytes,
                                          reinterpret_cast<std::byte*>(sample.data())));
    digest.Add(sample);
  }
  return digest.value();
}

}  // namespace bulkhead
