#include "shard/weight_blocks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "shard/widen.h"

namespace bulkhead {
namespace {

// A block is packed while it is still in the L2 cache; its rows make whole panels of any backend.
constexpr int64_t kBlockBytes = int64_t{1} << 19;
constexpr int64_t kBlockRows = 32;

// Rows of `row_bytes` per block.
int64_t RowsPerBlock(int64_t row_bytes) {
  const int64_t max_rows = Checkpoint::kStagingBytes / row_bytes;
  const int64_t rows = std::max(kBlockBytes / row_bytes, kBlockRows) / kBlockRows * kBlockRows;
  return std::max<int64_t>(1, std::min(rows, max_rows));
}

// Blocks end at whole words of outputs, and at whole panels if these fit.
void AddQuantizedBlocks(const WeightPart& part, std::vector<WeightBlock>& blocks) {
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

// Reads a tensor whose rows are the inputs: [inputs, block.rows], in one read if the block has all.
absl::Status ReadColumns(const WeightBlock& block, std::byte* staging) {
  const WeightPart& part = *block.part;
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

absl::Status ReadRows(const WeightBlock& block, std::byte* staging) {
  const WeightPart& part = *block.part;
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

// to [cols, rows] = the transpose of from [rows, cols], elements of 2 or 4 bytes.
void Transpose(const std::byte* from, int64_t rows, int64_t cols, int64_t element_bytes,
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

absl::Status LoadQuantizedBlock(const WeightBlock& block, std::byte* staging) {
  const WeightPart& part = *block.part;
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

}  // namespace

std::vector<WeightBlock> BlocksOf(const std::vector<WeightPart>& parts) {
  std::vector<WeightBlock> blocks;
  for (const WeightPart& part : parts) {
    if (part.slice.cols.empty()) continue;
    if (part.quantized.has_value()) {
      AddQuantizedBlocks(part, blocks);
      continue;
    }
    BH_CHECK(part.BytesPerRow() <= Checkpoint::kStagingBytes);  // ensured by ModelConfig's limits
    // Transposed rows take many short reads, so blocks have as many rows as there is room for.
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

absl::Status LoadBlock(const WeightBlock& block, std::byte* staging) {
  const WeightPart& part = *block.part;
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
  part.target.sink->PutRows(part.target.sink_row + block.rows.begin - part.slice.rows.begin, rows);
  return absl::OkStatus();
}

}  // namespace bulkhead
