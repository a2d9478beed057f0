// WeightLoader: reads exactly the bytes of a checkpoint that one rank owns, with pread, and hands the
// rows to the sinks that the backend gave. Reader threads work in parallel.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "memory/linear.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"

namespace bulkhead {

// A checkpoint's headers, checked: safetensors, single or sharded with an index. No weight was read yet.
class Checkpoint {
 public:
  // Opens DIR/model.safetensors or the files of DIR/model.safetensors.index.json. Failures carry exit
  // code 3 and name the file and the tensor: NOT_FOUND, DATA_LOSS (truncated, a header that lies).
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);
  virtual ~Checkpoint() = default;

  // Every weight that `config` demands is there with its shape and a known dtype, and no weight is there
  // that the table does not know (rotary caches, and lm_head when tied, are known and ignored).
  virtual absl::Status CheckAgainst(const ModelConfig& config) const = 0;

  // Where the rows of each weight go. Matrices through a WeightSink and the row where they start in it
  // (v starts after q and k in qkv); vectors (norms, biases) as f32 into memory.
  struct Target {
    WeightName name;
    WeightSink* sink = nullptr;  // a matrix
    int64_t sink_row = 0;
    float* vector = nullptr;     // or a vector: this rank's columns of it
  };
  // Loads every target. `bytes_done` counts as the load goes (the whole is BytesToRead); `cancelled` is
  // polled. Not collective. At most `num_threads` threads, one staging buffer each.
  virtual absl::Status Load(absl::Span<const Target> targets, const RankShard& shard, int num_threads,
                            std::atomic<int64_t>* bytes_done,
                            const std::function<bool()>& cancelled) const = 0;
  virtual int64_t BytesToRead(absl::Span<const Target> targets, const RankShard& shard) const = 0;

  // A digest of names, shapes, dtypes and offsets, to compare between ranks.
  virtual uint64_t Fingerprint() const = 0;
};

}  // namespace bulkhead
