// Checkpoint: reads exactly the bytes that one rank owns, with pread, and hands the rows to the
// sinks that the backend gave. Reader threads work in parallel, each with one staging buffer.
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

// A checkpoint's headers, checked: safetensors, single or sharded with an index. No weight was read
// yet. Holds its files open. All methods are const and may be called from several threads at once.
class Checkpoint {
 public:
  // Memory that Load holds per thread, beside what sinks hold (WeightSink::HostBytes).
  static constexpr int64_t kStagingBytes = int64_t{8} << 20;
  // What sinks that are begun and not complete hold at most: one for each thread, as one thread
  // completes it, up to kOpenBytes, but never less than two of the largest.
  static constexpr int64_t kOpenBytes = int64_t{4} << 30;
  static int64_t MostOpenBytes(int64_t largest, int num_threads) {
    return std::max(2 * largest, std::min(largest * num_threads, kOpenBytes));
  }
  static constexpr int kMaxThreads = 64;

  // Opens DIR/model.safetensors or the files of DIR/model.safetensors.index.json. Failures carry
  // exit code 3 and name the file and the tensor: NOT_FOUND, DATA_LOSS (truncated, a header that
  // lies, an index that disagrees with its files), INVALID_ARGUMENT (an index that is not one).
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);
  // The tensors of an adapter (shard/adapter.h): for Load, by AdapterTensors, and the digests
  // alone.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenAdapter(const std::string& dir);
  virtual ~Checkpoint() = default;

  // Every weight that `config` demands is there with its shape as F32, BF16 or F16, and no weight
  // is there that the config has no place for. NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED (number
  // format) with exit code 3, naming file and tensor.
  virtual absl::Status CheckAgainst(const ModelConfig& config) const = 0;

  // The family whose names the tensors have: the config's, or the multimodal one whose text part it
  // is, since transformers saves that part, as a model of its own, under the names it had.
  virtual const FamilySpec* FamilyOfNames(const ModelConfig& config,
                                          FamilySpecs families) const = 0;

  // Whether there is an lm_head.
  virtual bool HasLmHead(const ModelConfig& config) const = 0;

  // Whether there is an lm_head with other values than the embedding: a config that ties them is
  // then wrong. Reads both as far as they are equal. DATA_LOSS with exit code 3 when it cannot.
  virtual absl::StatusOr<bool> HasOwnLmHead(const ModelConfig& config) const = 0;

  // The number format that most bytes of the weights have.
  virtual DType MainDType() const = 0;

  // Where this rank's part of a weight goes.
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
  // Bytes that Load reads; 0 where it would refuse. Whole rows count where a rank's columns are too
  // narrow to be read alone.
  virtual int64_t BytesToRead(absl::Span<const Target> targets, const RankShard& shard) const = 0;

  // A digest of names, shapes, dtypes and offsets, to compare between ranks.
  virtual uint64_t Fingerprint() const = 0;

  // What stands in a file's tensors, to compare between ranks: of each tensor 4 KiB at its begin,
  // end, and one and two thirds of the way, all of it where it is smaller. Another tensor differs
  // there; a few changed values elsewhere do not.
  struct FileDigest {
    std::string name;  // without its folder
    uint64_t digest = 0;
  };
  static constexpr int64_t kSamplesPerTensor = 4;
  static constexpr int64_t kSampleBytes = 4096;
  // By name; of the checkpoint's own files. DATA_LOSS with exit code 3 when one cannot be read.
  virtual absl::StatusOr<std::vector<FileDigest>> SampleFiles() const = 0;
};

}  // namespace bulkhead
