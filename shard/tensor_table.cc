// TensorTable's calls and the rows they add.
#include <utility>

#include "base/check.h"
#include "shard/family_spec.h"
#include "shard/tensor_row.h"

namespace bulkhead {

void TensorTable::Add(TensorRow row) {
  row.prefix = family_.prefix;
  row.model_prefix = family_.model_prefix;
  row.layer = layer_;
  row.expert = expert_;
  rows_.push_back(std::move(row));
}

void TensorTable::ColumnParallel(int slot, const std::string& name, int64_t rows, int64_t cols,
                                 Split split, bool bias) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kLayerMatrix,
       .rows = rows,
       .cols = cols,
       .output_split = split});
  if (bias)
    Add({.name = name, .field = ".bias", .slot = slot, .cols = rows, .output_split = split});
}

void TensorTable::RowParallel(int slot, const std::string& name, int64_t rows, int64_t cols,
                              Split split, bool bias) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kLayerMatrix,
       .rows = rows,
       .cols = cols,
       .input_split = split});
  if (bias) Add({.name = name, .field = ".bias", .slot = slot, .cols = rows});
}

void TensorTable::FusedExperts(int slot, const std::string& name, ExpertPart part, int64_t cols,
                               Split output_split, Split input_split) {
  BH_CHECK(expert_ >= 0);
  Add({.name = name,
       .slot = slot,
       .held_as = HeldAs::kLayerMatrix,
       .rows = part.rows,
       .cols = cols,
       .output_split = output_split,
       .input_split = input_split,
       .file_begin = part.begin,
       .file_size = part.size,
       .file_experts = num_experts_,
       .is_transposed = part.is_transposed,
       .file_input_begin = part.is_transposed ? expert_ * cols : 0});
}

void TensorTable::OfHead(int slot, const char* name, HeadPart part, int64_t cols) {
  TensorRow row{.name = name,
                .field = ".weight",
                .head = part.head,
                .slot = slot,
                .held_as = HeldAs::kLayerMatrix,
                .rows = part.rows,
                .cols = cols,
                .output_split = Split::kEachHead,
                .file_begin = part.begin,
                .file_size = part.size};
  if (part.is_transposed) {
    std::swap(row.rows, row.cols);
    row.is_transposed = true;
    row.file_input_begin = std::exchange(row.file_begin, 0);
    row.file_inputs = std::exchange(row.file_size, cols);
  }
  Add(std::move(row));
}

void TensorTable::JoinedHead(int slot, const char* name, HeadPart part, int64_t cols, Split split) {
  OfHead(slot, name, part, cols);
  rows_.back().joins_heads = true;
  rows_.back().output_split = split;
}

void TensorTable::Convolution(int slot, const char* name, absl::Span<const Part> parts, int taps) {
  int64_t size = 0;
  for (const Part& part : parts) size += part.rows * taps;
  int64_t begin = 0;
  for (const Part& part : parts) {
    Add({.name = name,
         .field = ".weight",
         .slot = slot,
         .cols = part.rows * taps,
         .output_split = part.split,
         .file_begin = begin,
         .file_size = size,
         .file_taps = taps});
    begin += part.rows * taps;
  }
}

void TensorTable::FusedExpertBias(int slot, const std::string& name, int64_t size, Split split) {
  BH_CHECK(expert_ >= 0);
  Add({.name = name,
       .slot = slot,
       .cols = size,
       .output_split = split,
       .file_size = size,
       .file_experts = num_experts_});
}

void TensorTable::Replicated(int slot, const char* name, int64_t rows, int64_t cols, bool bias) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kF32Matrix,
       .rows = rows,
       .cols = cols});
  if (bias) Add({.name = name, .field = ".bias", .slot = slot, .cols = rows});
}

void TensorTable::WholeMatrix(int slot, const std::string& name, int64_t rows, int64_t cols) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kKeptMatrix,
       .rows = rows,
       .cols = cols});
}

void TensorTable::VocabParallel(int slot, const std::string& name, int64_t rows, int64_t cols,
                                const std::string& shared_name) {
  Add({.name = name,
       .field = ".weight",
       .shared_name = shared_name,
       .slot = slot,
       .held_as = HeldAs::kTable,
       .rows = rows,
       .cols = cols,
       .output_split = Split::kVocab});
}

void TensorTable::FusedColumnParallel(int slot, const char* name, absl::Span<const Part> parts,
                                      int64_t cols, bool bias) {
  int64_t size = 0;
  for (const Part& part : parts) size += part.rows;
  int64_t begin = 0;
  for (const Part& part : parts) {
    Add({.name = name,
         .field = ".weight",
         .slot = slot,
         .held_as = HeldAs::kLayerMatrix,
         .rows = part.rows,
         .cols = cols,
         .output_split = part.split,
         .file_begin = begin,
         .file_size = size});
    if (bias) {
      Add({.name = name,
           .field = ".bias",
           .slot = slot,
           .cols = part.rows,
           .output_split = part.split,
           .file_begin = begin,
           .file_size = size});
    }
    begin += part.rows;
  }
}

void TensorTable::Norm(int slot, const std::string& name, int64_t cols, float offset, bool bias) {
  Add({.name = name, .field = ".weight", .slot = slot, .cols = cols, .value_offset = offset});
  if (bias) Add({.name = name, .field = ".bias", .slot = slot, .cols = cols});
}

void TensorTable::Optional(const std::string& name) { Add({.name = name, .optional = true}); }

void TensorTable::Vector(int slot, const std::string& name, int64_t cols, Split split,
                         float offset) {
  Add({.name = name, .slot = slot, .cols = cols, .output_split = split, .value_offset = offset});
}

void TensorTable::KvScales(int slot, const char* name, int64_t cols, Split split) {
  Add({.name = name, .slot = slot, .cols = cols, .output_split = split, .is_kv_scale = true});
}

}  // namespace bulkhead
