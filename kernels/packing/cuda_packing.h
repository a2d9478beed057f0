// A weight in the layout of cuda_layout.h: how large it is, where its parts lie, and the sink
// that fills it on the host and copies it to the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/packing/cuda_layout.h"
#include "memory/linear.h"

namespace bulkhead {

// The parts of a packed weight, from config alone: the same on every machine.
class PackedLayout {
 public:
  explicit PackedLayout(const LinearShape& shape);

  int64_t bytes() const { return bytes_; }
  int64_t padded_rows() const { return padded_rows_; }
  int64_t depth() const { return depth_; }          // with an index at most: room is left for any
  int64_t num_cells() const { return num_cells_; }  // with an index its groups
  // Of the cell that takes most of the depth, of nvfp4 of the whole; with an index at most.
  // ChunkCell holds fewer than kMaxCells / 2.
  int64_t longest_cell_chunks() const { return longest_cell_chunks_; }
  bool keeps_order() const {
    return keeps_order_;
  }  // the depth begins with the inputs, as they are
  // Whether it does and cells are the inputs' groups of 128, the last of which may be shorter.
  bool is_in_128s() const { return keeps_order_ && is_in_128s_; }
  // What cells begin on: chunks; of nvfp4, of which a chunk has two groups, halves of them.
  int64_t run_inputs() const { return run_inputs_; }
  int64_t scaling_at() const { return scaling_at_; }
  int64_t group_scales_at() const { return group_scales_at_; }
  int64_t scaling_bytes() const { return chunk_cell_at_ - scaling_at_; }
  int64_t chunk_cell_at() const { return chunk_cell_at_; }
  int64_t input_at_at() const { return input_at_at_; }

  // What kernels take of a weight that lies at `packed`.
  cuda::PackedWeight Parameters(const LinearShape& shape, const std::byte* packed) const;

 private:
  int64_t padded_rows_ = 0;
  int64_t depth_ = 0;
  int64_t num_cells_ = 0;
  int64_t longest_cell_chunks_ = 0;
  bool keeps_order_ = true;
  bool is_in_128s_ = false;
  int64_t run_inputs_ = cuda::kChunkInputs;
  int64_t scaling_at_ = 0;
  int64_t group_scales_at_ = 0;
  int64_t chunk_cell_at_ = 0;
  int64_t input_at_at_ = 0;
  int64_t bytes_ = 0;
};

// Copies host memory to the device and returns when that memory is free again; from any thread.
using CopyToDevice = std::function<void(const void* host, std::byte* device, int64_t bytes)>;

// Numbers go to the device row by row. Codes are put together on the host and go when the
// last row (and the index, where there is one) has come; until then the sink holds them.
std::unique_ptr<WeightSink> NewPackingSink(const Linear& linear, CopyToDevice copy);
// What such a sink holds: codes, a byte each, their scalings, and what is copied.
int64_t PackingHostBytes(const LinearShape& shape);

}  // namespace bulkhead
