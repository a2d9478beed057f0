// Checkpoint: reads exactly the bytes that one rank owns, with pread, and passes the rows to the
// backend's sinks. Reader threads work in parallel, each with one staging buffer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/linear.h"
#include "shard/family_spec.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"

namespace bulkhead {

// A checkpoint's checked headers: safetensors, single or sharded with an index. No weights are read
// yet. Keeps its files open. All methods are const and may be called from several threads at once.
class Checkpoint {
 public:
  // Memory that Load holds per thread, besides that of sinks (WeightSink::HostBytes).
  static constexpr int64_t kStagingBytes = int64_t{8} << 20;
  // Maximum host memory of incomplete sinks: one per thread, as one thread completes each, up to
  // kOpenBytes, but never less than two of the largest.
  static constexpr int64_t kOpenBytes = int64_t{4} << 30;
  static int64_t MostOpenBytes(int64_t largest, int num_threads) {
    return std::max(2 * largest, std::min(largest * num_threads, kOpenBytes));
  }
  static constexpr int kMaxThreads = 64;

  // Opens DIR/model.safetensors or the files of DIR/model.safetensors.index.json. Failures carry
  // exit code 3 and name the file and the tensor: NOT_FOUND, DATA_LOSS (truncated, a false header,
  // an index that disagrees with its files), INVALID_ARGUMENT (a malformed index).
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);
  // The tensors of an adapter (shard/adapter.h): only for Load, with AdapterTensors, and for the
  // digests.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenAdapter(const std::string& dir);
  virtual ~Checkpoint() = default;

  // Checks that every weight that `config` demands is present with its shape as F32, BF16 or F16,
  // and that there are no others. NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED (number format) with
  // exit code 3, naming file and tensor.
  virtual absl::Status CheckAgainst(const ModelConfig& config) const = 0;

  // The family whose tensor names the checkpoint uses: the config's, or that of the multimodal
  // model it is the text part of: transformers saves that part under its original names.
  virtual const FamilySpec* FamilyOfNames(const ModelConfig& config,
                                          FamilySpecs families) const = 0;

  // Whether there is an lm_head.
  virtual bool HasLmHead(const ModelConfig& config) const = 0;

  // Whether there is an lm_head that differs from the embedding: a config that ties them is then
  // wrong. Compares as many bytes as both have. DATA_LOSS with exit code 3 on a failed read.
  virtual absl::StatusOr<bool> HasOwnLmHead(const ModelConfig& config) const = 0;

  // The number format of most of the weights' bytes.
  virtual DType MainDType() const = 0;

  // Destination of this rank's part of a weight.
  struct Target {
    TensorRow row;
    WeightSink* sink =
        nullptr;              // a matrix: its first owned row becomes row `sink_row` of the sink,
    int64_t sink_row = 0;     // the columns are the owned ones
    float* vector = nullptr;  // or a vector: this rank's elements of it, as f32
  };
  // Loads every target's part that `shard` owns. Not collective; returns when all threads have
  // ended. `bytes_done` (may be null) counts up to BytesToRead; `cancelled` (may be empty) is
  // polled on the calling thread, and true ends with CANCELLED. Other failures carry exit code 3
  // and name file and tensor: a weight that is missing or lacks the shape that shard.model
  // demands, a failed read. `num_threads` counts the calling one; more than kMaxThreads do not help
  // and are not started.
  virtual absl::Status Load(absl::Span<const Target> targets, const RankShard& shard,
                            int num_threads, std::atomic<int64_t>* bytes_done,
                            const std::function<bool()>& cancelled) const = 0;
  // Bytes that Load reads; 0 if it would refuse. Counts whole rows if a rank's columns are too
  // narrow to be read separately.
  virtual int64_t BytesToRead(absl::Span<const Target> targets, const RankShard& shard) const = 0;

  // A digest of names, shapes, dtypes and offsets, to compare between ranks.
  virtual uint64_t Fingerprint() const = 0;

  // Samples of a file's tensors, to compare between ranks: 4 KiB of each tensor at its begin, end,
  // one third and two thirds, or all of a smaller one. Detects another tensor, but not a few
  // changed values elsewhere.
  struct FileDigest {
    std::string name;  // without its folder
    uint64_t digest = 0;
  };
  static constexpr int64_t kSamplesPerTensor = 4;
  static constexpr int64_t kSampleBytes = 4096;
  // By name; the checkpoint's own files only. DATA_LOSS with exit code 3 on a failed read.
  virtual absl::StatusOr<std::vector<FileDigest>> SampleFiles() const = 0;
};

}  // namespace bulkhead
