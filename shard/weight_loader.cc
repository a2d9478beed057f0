#include "shard/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <optional>
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
#include "shard/dequantized_rows.h"
#include "shard/kv_scales.h"
#include "shard/quantized_tensors.h"
#include "shard/tensor_index.h"
#include "shard/weight_samples.h"
#include "shard/widen.h"

namespace bulkhead {
namespace {

// From here on a row's owned columns are read alone; below it, a read of its own costs more than
// the bytes around them.
constexpr int64_t kMinSegmentBytes = int64_t{8} << 10;
// What is read at a time is packed while it is still in the second cache; in rows that make whole
// panels of any backend.
constexpr int64_t kBlockBytes = int64_t{1} << 19;
constexpr int64_t kBlockRows = 32;

// Rows of `row_bytes` that are read at a time.
int64_t RowsPerBlock(int64_t row_bytes) {
  const int64_t max_rows = Checkpoint::kStagingBytes / row_bytes;
  const int64_t rows = std::max(kBlockBytes / row_bytes, kBlockRows) / kBlockRows * kBlockRows;
  return std::max<int64_t>(1, std::min(rows, max_rows));
}

// What one target needs of its tensor.
struct Part {
  Checkpoint::Target target;
  LocatedTensor tensor;
  DType dtype = DType::kF32;
  TensorSlice slice;
  int64_t full_cols = 0;
  bool reads_segments = false;  // the owned columns alone, row by row
  // Where the checkpoint holds it in codes; `tensor` is then the one with the codes.
  std::optional<QuantizedTensors> quantized;

  bool is_transposed() const { return target.row.is_transposed; }
  bool is_dequantized() const { return target.row.held_as == HeldAs::kDequantized; }
  int64_t QuantizedStagingBytes(Range rows) const {
    return is_dequantized() ? DequantizedStagingBytes(*quantized, target.row, rows, slice.cols)
                            : quantized->StagingBytes(slice.cols, rows.size());
  }
  int64_t QuantizedReadBytes(Range rows) const {
    return IsTransposedInCodes(target.row) ? quantized->ReadBytes(rows, slice.cols.size())
                                           : quantized->ReadBytes(slice.cols, rows.size());
  }
  int64_t BytesPerRow() const {
    return (reads_segments ? slice.cols.size() : full_cols) * DTypeBytes(dtype);
  }
};

struct Block {
  const Part* part = nullptr;
  Range rows;  // of the full weight
  // Read from the file, and held in staging memory meanwhile.
  int64_t bytes() const {
    return part->quantized.has_value() ? part->QuantizedReadBytes(rows)
                                       : rows.size() * part->BytesPerRow();
  }
  int64_t staging_bytes() const {
    if (part->quantized.has_value()) return part->QuantizedStagingBytes(rows);
    return part->is_transposed() ? 2 * bytes() : bytes();
  }
};

// One load: the blocks, and the threads that take them from one queue.
class LoadRun {
 public:
  LoadRun(std::vector<Block> blocks, std::atomic<int64_t>* bytes_done)
      : blocks_(std::move(blocks)), bytes_done_(bytes_done) {
    // Large ones first, so that the threads end together; among equals in file order.
    std::stable_sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
      return a.staging_bytes() > b.staging_bytes();
    });
  }

  absl::Status Run(int num_threads, const std::function<bool()>& cancelled) {
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
  void TakeBlocks(const std::function<bool()>& cancelled) {
    if (blocks_.empty()) return;
    const auto staging =
        std::make_unique_for_overwrite<std::byte[]>(blocks_.front().staging_bytes());
    while (!stop_.load(std::memory_order_relaxed)) {
      if (cancelled && cancelled()) return End(absl::CancelledError("loading was cancelled"));
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= blocks_.size()) return;
      const Block& block = blocks_[index];
      if (absl::Status status = LoadBlock(block, staging.get()); !status.ok()) {
        return End(std::move(status));
      }
      if (bytes_done_ != nullptr) bytes_done_->fetch_add(block.bytes(), std::memory_order_relaxed);
    }
  }

  static absl::Status LoadBlock(const Block& block, std::byte* staging) {
    const Part& part = *block.part;
    if (part.quantized.has_value()) return LoadQuantizedBlock(block, staging);
    if (absl::Status status = ReadRows(block, staging); !status.ok()) {
      return absl::DataLossError(
          absl::StrCat("tensor '", part.tensor.entry->name, "': ", status.message()));
    }
    if (part.target.vector != nullptr) {
      const int64_t count = part.slice.cols.size();
      WidenToF32(staging, part.dtype, count, part.target.vector);
      const float offset = part.target.row.value_offset;
      for (int64_t i = 0; offset != 0 && i < count; ++i) part.target.vector[i] += offset;
      return absl::OkStatus();
    }
    const int64_t cols = part.slice.cols.size();
    if (part.is_transposed()) {
      std::byte* const rows = staging + block.bytes();
      Transpose(staging, cols, block.rows.size(), DTypeBytes(part.dtype), rows);
      staging = rows;
    }
    ConstMatrixView rows(staging, part.dtype, block.rows.size(),
                         part.reads_segments ? cols : part.full_cols);
    if (!part.reads_segments) rows = rows.Cols(part.slice.cols.begin, cols);
    part.target.sink->PutRows(part.target.sink_row + block.rows.begin - part.slice.rows.begin,
                              rows);
    return absl::OkStatus();
  }

  // to [cols, rows] = the transpose of from [rows, cols], of elements of 2 or 4 bytes.
  static void Transpose(const std::byte* from, int64_t rows, int64_t cols, int64_t element_bytes,
                        std::byte* to) {
    constexpr int64_t kTile = 32;
    for (int64_t tile = 0; tile < cols; tile += kTile) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = tile; col < std::min(tile + kTile, cols); ++col) {
          std::memcpy(to + (col * rows + row) * element_bytes,
                      from + (row * cols + col) * element_bytes, element_bytes);
        }
      }
    }
  }

  static absl::Status LoadQuantizedBlock(const Block& block, std::byte* staging) {
    const Part& part = *block.part;
    const int64_t sink_row = part.target.sink_row + block.rows.begin - part.slice.rows.begin;
    absl::Status status;
    if (part.is_dequantized()) {
      const auto rows =
          ReadDequantized(*part.quantized, part.target.row, block.rows, part.slice.cols, staging);
      if (rows.ok()) part.target.sink->PutRows(sink_row, *rows);
      status = rows.status();
    } else {
      const auto rows = part.quantized->ReadRows(block.rows, part.slice.cols, staging);
      if (rows.ok()) part.target.sink->PutQuantizedRows(sink_row, *rows);
      status = rows.status();
    }
    if (status.ok()) return status;
    return absl::DataLossError(
        absl::StrCat("tensor '", part.tensor.entry->name, "': ", status.message()));
  }

  static absl::Status ReadRows(const Block& block, std::byte* staging) {
    const Part& part = *block.part;
    const LocalFile& file = *part.tensor.file;
    if (part.is_transposed()) return ReadColumns(block, staging);
    const int64_t row_bytes = part.full_cols * DTypeBytes(part.dtype);
    const int64_t begin = part.tensor.entry->begin + block.rows.begin * row_bytes;
    if (!part.reads_segments) return file.ReadAt(begin, block.bytes(), staging);
    const int64_t skipped = part.slice.cols.begin * DTypeBytes(part.dtype);
    for (int64_t row = 0; row < block.rows.size(); ++row) {
      BH_RETURN_IF_ERROR(file.ReadAt(begin + row * row_bytes + skipped, part.BytesPerRow(),
                                     staging + row * part.BytesPerRow()));
    }
    return absl::OkStatus();
  }

  // Of a tensor whose rows are the inputs: [inputs, block.rows], at once where that is all of them.
  static absl::Status ReadColumns(const Block& block, std::byte* staging) {
    const Part& part = *block.part;
    const TensorRow& row = part.target.row;
    const int64_t element_bytes = DTypeBytes(part.dtype);
    const int64_t bytes = block.rows.size() * element_bytes;
    const auto place_of = [&](int64_t input) {
      const int64_t at = (row.file_input_begin + input) * row.file_size + block.rows.begin;
      return part.tensor.entry->begin + at * element_bytes;
    };
    const Range inputs = part.slice.cols;
    if (block.rows.size() == row.file_size) {
      return part.tensor.file->ReadAt(place_of(inputs.begin), inputs.size() * bytes, staging);
    }
    for (int64_t input = inputs.begin; input < inputs.end; ++input, staging += bytes) {
      BH_RETURN_IF_ERROR(part.tensor.file->ReadAt(place_of(input), bytes, staging));
    }
    return absl::OkStatus();
  }

  void End(absl::Status status) {
    stop_.store(true, std::memory_order_relaxed);
    const absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);  // the first one counts
  }

  std::vector<Block> blocks_;
  std::atomic<int64_t>* bytes_done_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Cut at whole words of outputs, in whole panels where they fit.
void AddQuantizedBlocks(const Part& part, std::vector<Block>& blocks) {
  constexpr int64_t kWord = 8;
  const int64_t word_bytes = part.QuantizedStagingBytes({0, kWord});
  const int64_t max_rows = std::max<int64_t>(1, Checkpoint::kStagingBytes / word_bytes) * kWord;
  const int64_t rows = max_rows > kBlockRows ? max_rows / kBlockRows * kBlockRows : max_rows;
  for (int64_t row = part.slice.rows.begin; row < part.slice.rows.end;) {
    const int64_t end = std::min((row / kWord) * kWord + rows, part.slice.rows.end);
    blocks.push_back({&part, {row, end}});
    row = end;
  }
}

std::vector<Block> BlocksOf(const std::vector<Part>& parts) {
  std::vector<Block> blocks;
  for (const Part& part : parts) {
    if (part.slice.cols.empty()) continue;
    if (part.quantized.has_value()) {
      AddQuantizedBlocks(part, blocks);
      continue;
    }
    BH_CHECK(part.BytesPerRow() <= Checkpoint::kStagingBytes);  // ModelConfig's limits see to it
    // Transposed rows are read in many short pieces, so as many as there is room for.
    const int64_t rows =
        part.is_transposed()
            ? std::max<int64_t>(1, Checkpoint::kStagingBytes / (2 * part.BytesPerRow()))
            : RowsPerBlock(part.BytesPerRow());
    for (int64_t row = part.slice.rows.begin; row < part.slice.rows.end; row += rows) {
      blocks.push_back({&part, {row, std::min(row + rows, part.slice.rows.end)}});
    }
  }
  return blocks;
}

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
    // A file that was rewritten meanwhile may have given old and new bytes.
    return RefuseModel(CheckUnchanged(*parts));
  }

  int64_t BytesToRead(absl::Span<const Target> targets, const RankShard& shard) const override {
    const auto parts = PartsOf(targets, shard);
    if (!parts.ok()) return 0;
    int64_t bytes = 0;
    for (const Block& block : BlocksOf(*parts)) bytes += block.bytes();
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
  absl::StatusOr<std::vector<Part>> PartsOf(absl::Span<const Target> targets,
                                            const RankShard& shard) const {
    const ModelConfig& config = *shard.model;
    std::vector<Part> parts;
    parts.reserve(targets.size());
    for (const Target& target : targets) {
      if (target.row.is_kv_scale) continue;
      const bool is_vector = target.row.is_vector();
      BH_CHECK(is_vector ? target.vector != nullptr && target.sink == nullptr
                         : target.vector == nullptr && target.sink != nullptr);
      Part part;
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

  static absl::Status PutGroupIndices(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      if (!part.quantized.has_value() || part.is_dequantized() || part.slice.cols.empty()) continue;
      BH_ASSIGN_OR_RETURN(const std::vector<int32_t> index,
                          part.quantized->ReadGroupIndex(part.slice.cols));
      if (!index.empty()) part.target.sink->PutGroupIndex(index);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckUnchanged(const std::vector<Part>& parts) {
    std::set<const LocalFile*> files;
    for (const Part& part : parts) files.insert(part.tensor.file);
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

}  // namespace bulkhead
