#include "shard/weight_loader.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "shard/kv_scales.h"
#include "shard/tensor_index.h"
#include "shard/weight_blocks.h"
#include "shard/weight_samples.h"

namespace bulkhead {
namespace {

// Below this size of a row's owned columns, whole rows are read: a separate read costs more than
// the bytes around them.
constexpr int64_t kMinSegmentBytes = int64_t{8} << 10;

// One load: the blocks, and the threads that take them from one queue.
class LoadRun {
 public:
  LoadRun(std::vector<WeightBlock> blocks, std::atomic<int64_t>* bytes_done)
      : blocks_(std::move(blocks)), bytes_done_(bytes_done) {
    std::map<const void*, int> weights;
    for (WeightBlock& block : blocks_) {
      const Checkpoint::Target& target = block.part->target;
      const void* const owner = target.sink != nullptr ? static_cast<const void*>(target.sink)
                                                       : static_cast<const void*>(target.vector);
      block.weight = weights.try_emplace(owner, std::ssize(weights_)).first->second;
      if (block.weight == std::ssize(weights_)) {
        weights_.push_back({.host_bytes = target.sink == nullptr ? 0 : target.sink->HostBytes()});
        largest_bytes_ = std::max(largest_bytes_, weights_.back().host_bytes);
      }
      Weight& weight = weights_[block.weight];
      ++weight.blocks_left;
      weight.staging_bytes = std::max(weight.staging_bytes, block.staging_bytes());
      most_staging_bytes_ = std::max(most_staging_bytes_, block.staging_bytes());
    }
    // Blocks of one weight together, so that few weights are incomplete at a time; large weights
    // first, so that the threads end together; equal sizes in file order.
    std::stable_sort(blocks_.begin(), blocks_.end(),
                     [this](const WeightBlock& a, const WeightBlock& b) {
                       const int64_t a_bytes = weights_[a.weight].staging_bytes;
                       const int64_t b_bytes = weights_[b.weight].staging_bytes;
                       return a_bytes != b_bytes ? a_bytes > b_bytes : a.weight < b.weight;
                     });
  }

  absl::Status Run(int num_threads, const std::function<bool()>& cancelled) {
    most_open_bytes_ = Checkpoint::MostOpenBytes(largest_bytes_, num_threads);
    std::vector<std::thread> threads;
    try {
      for (int i = 1; i < num_threads; ++i) threads.emplace_back([this] { TakeBlocks({}); });
    } catch (const std::system_error&) {
      // Fewer threads than requested load the same bytes.
    }
    TakeBlocks(cancelled);
    for (std::thread& thread : threads) thread.join();
    const absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  struct Weight {
    int64_t host_bytes = 0;
    int64_t staging_bytes = 0;  // of its largest block
    int64_t blocks_left = 0;
    bool is_open = false;
  };

  void TakeBlocks(const std::function<bool()>& cancelled) {
    if (blocks_.empty()) return;
    const auto staging = std::make_unique_for_overwrite<std::byte[]>(most_staging_bytes_);
    while (!stop_.load(std::memory_order_relaxed)) {
      if (cancelled && cancelled()) return End(absl::CancelledError("loading was cancelled"));
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= blocks_.size()) return;
      const WeightBlock& block = blocks_[index];
      if (!Open(weights_[block.weight])) return;
      if (absl::Status status = LoadBlock(block, staging.get()); !status.ok()) {
        return End(std::move(status));
      }
      CountBlock(weights_[block.weight]);
      if (bytes_done_ != nullptr) bytes_done_->fetch_add(block.bytes(), std::memory_order_relaxed);
    }
  }

  // Waits until the weight may be begun; false: loading has ended meanwhile. A thread never waits
  // for an open weight, so open weights always complete.
  bool Open(Weight& weight) {
    const auto may_go_on = [&] {
      mutex_.AssertReaderHeld();
      return weight.is_open || open_bytes_ == 0 ||
             open_bytes_ + weight.host_bytes <= most_open_bytes_ || stop_;
    };
    const absl::MutexLock lock(&mutex_, absl::Condition(&may_go_on));
    if (!weight.is_open) open_bytes_ += weight.host_bytes;
    weight.is_open = true;
    return !stop_;
  }

  void CountBlock(Weight& weight) {
    const absl::MutexLock lock(&mutex_);
    if (--weight.blocks_left == 0) open_bytes_ -= weight.host_bytes;
  }

  void End(absl::Status status) {
    const absl::MutexLock lock(&mutex_);
    stop_.store(true, std::memory_order_relaxed);
    if (status_.ok()) status_ = std::move(status);  // keep the first
  }

  std::vector<WeightBlock> blocks_;
  std::vector<Weight> weights_;  // by first block; guarded by mutex_
  int64_t most_staging_bytes_ = 0;
  int64_t largest_bytes_ = 0;  // host bytes of the largest weight
  int64_t most_open_bytes_ = 0;
  std::atomic<int64_t>* bytes_done_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  absl::Mutex mutex_;
  int64_t open_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

absl::Status RefuseModel(absl::Status status) {
  return absl::IsCancelled(status) ? status
                                   : WithExitCode(std::move(status), ExitCode::kModelRefused);
}

class SafetensorsCheckpoint : public Checkpoint {
 public:
  explicit SafetensorsCheckpoint(TensorIndex index) : index_(std::move(index)) {}

  absl::Status CheckAgainst(const ModelConfig& config) const override {
    return RefuseModel(index_.CheckAgainst(config));
  }

  const FamilySpec* FamilyOfNames(const ModelConfig& config, FamilySpecs families) const override {
    return index_.FamilyOfNames(config, families);
  }

  bool HasLmHead(const ModelConfig& config) const override { return index_.HasLmHead(config); }

  absl::StatusOr<bool> HasOwnLmHead(const ModelConfig& config) const override {
    absl::StatusOr<bool> own = index_.HasOwnLmHead(config);
    if (!own.ok()) return RefuseModel(own.status());
    return own;
  }

  absl::Status Load(absl::Span<const Target> targets, const RankShard& shard, int num_threads,
                    std::atomic<int64_t>* bytes_done,
                    const std::function<bool()>& cancelled) const override {
    auto parts = PartsOf(targets, shard);
    if (!parts.ok()) return RefuseModel(parts.status());
    if (absl::Status status = CheckUnchanged(*parts); !status.ok()) return RefuseModel(status);
    if (absl::Status status = PutGroupIndices(*parts); !status.ok()) return RefuseModel(status);
    BH_RETURN_IF_ERROR(RefuseModel(ReadKvScales(index_, targets, shard)));
    BH_CHECK(num_threads >= 1);
    LoadRun run(BlocksOf(*parts), bytes_done);
    if (absl::Status status = run.Run(std::min(num_threads, kMaxThreads), cancelled);
        !status.ok()) {
      return RefuseModel(status);
    }
    // A file rewritten meanwhile may have given a mix of old and new bytes.
    return RefuseModel(CheckUnchanged(*parts));
  }

  int64_t BytesToRead(absl::Span<const Target> targets, const RankShard& shard) const override {
    const auto parts = PartsOf(targets, shard);
    if (!parts.ok()) return 0;
    int64_t bytes = 0;
    for (const WeightBlock& block : BlocksOf(*parts)) bytes += block.bytes();
    return bytes;
  }

  uint64_t Fingerprint() const override { return index_.Fingerprint(); }
  absl::StatusOr<std::vector<FileDigest>> SampleFiles() const override {
    std::vector<FileDigest> digests;
    for (const auto& file : index_.files()) {
      const absl::StatusOr<uint64_t> digest = SampleTensors(*file);
      if (!digest.ok()) return RefuseModel(digest.status());
      const std::string& path = file->file().path();
      digests.push_back({path.substr(path.rfind('/') + 1), *digest});
    }
    return digests;
  }
  DType MainDType() const override { return index_.MainDType(); }

 private:
  absl::StatusOr<std::vector<WeightPart>> PartsOf(absl::Span<const Target> targets,
                                                  const RankShard& shard) const {
    const ModelConfig& config = *shard.model;
    std::vector<WeightPart> parts;
    parts.reserve(targets.size());
    for (const Target& target : targets) {
      if (target.row.is_kv_scale) continue;
      const bool is_vector = target.row.is_vector();
      BH_CHECK(is_vector ? target.vector != nullptr && target.sink == nullptr
                         : target.vector == nullptr && target.sink != nullptr);
      WeightPart part;
      part.target = target;
      part.slice = SliceOf(target.row, shard);
      Range& owned = is_vector ? part.slice.cols : part.slice.rows;
      int64_t first = target.row.file_begin;
      const bool quantized = IsHeldQuantized(target.row, config);
      if (target.row.file_experts > 0 && (quantized || !target.row.is_transposed)) {
        first += target.row.expert * target.row.file_size;
      }
      owned = {owned.begin + first, owned.end + first};
      if (quantized) {
        BH_ASSIGN_OR_RETURN(part.quantized, FindQuantized(index_, target.row, config));
        part.tensor = part.quantized->codes;
        parts.push_back(std::move(part));
        continue;
      }
      BH_ASSIGN_OR_RETURN(part.tensor, index_.Find(target.row));
      part.dtype = *part.tensor.entry->dtype;
      part.full_cols = is_vector ? target.row.FileSize() * std::max(1, target.row.file_experts)
                                 : target.row.cols;
      const int64_t owned_bytes = part.slice.cols.size() * DTypeBytes(part.dtype);
      part.reads_segments =
          part.is_transposed() || (part.slice.cols.size() < part.full_cols &&
                                   (is_vector || owned_bytes >= kMinSegmentBytes));
      parts.push_back(part);
    }
    return parts;
  }

  static absl::Status PutGroupIndices(const std::vector<WeightPart>& parts) {
    for (const WeightPart& part : parts) {
      if (!part.quantized.has_value() || part.is_dequantized() || part.slice.cols.empty()) continue;
      BH_ASSIGN_OR_RETURN(const std::vector<int32_t> index,
                          part.quantized->ReadGroupIndex(part.slice.cols));
      if (!index.empty()) part.target.sink->PutGroupIndex(index);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckUnchanged(const std::vector<WeightPart>& parts) {
    std::set<const LocalFile*> files;
    for (const WeightPart& part : parts) files.insert(part.tensor.file);
    for (const LocalFile* file : files) BH_RETURN_IF_ERROR(file->CheckUnchanged());
    return absl::OkStatus();
  }

  TensorIndex index_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir) {
  auto index = TensorIndex::Open(dir);
  if (!index.ok()) return RefuseModel(index.status());
  return std::unique_ptr<Checkpoint>(new SafetensorsCheckpoint(*std::move(index)));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenAdapter(const std::string& dir) {
  auto index = TensorIndex::OpenAdapter(dir);
  if (!index.ok()) return RefuseModel(index.status());
  return std::unique_ptr<Checkpoint>(new SafetensorsCheckpoint(*std::move(index)));
}

}  // namespace bulkhead
