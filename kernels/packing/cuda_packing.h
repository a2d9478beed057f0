// A weight in the layout of cuda_layout.h: its size, the positions of its parts, and the sink that
// fills it on the host and copies it to the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/packing/cuda_layout.h"
#include "memory/linear.h"

namespace bulkhead {

// The parts of a packed weight, from the config only: the same on every machine.
class PackedLayout {
 public:
  explicit PackedLayout(const LinearShape& shape);

  int64_t bytes() const { return bytes_; }
  int64_t padded_rows() const { return padded_rows_; }
  int64_t depth() const { return depth_; }          // with an index the maximum of any index
  int64_t num_cells() const { return num_cells_; }  // with an index its groups
  // Of the cell with the most chunks, for nvfp4 of the whole depth; with an index the maximum.
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

  // The kernel parameters of a weight stored at `packed`.
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

// Copies host memory to the device and returns when that memory may be reused; from any thread.
using CopyToDevice = std::function<void(const void* host, std::byte* device, int64_t bytes)>;

// Floats are copied to the device row by row. Codes are assembled on the host and copied when the
// last row (and the index, if there is one) has arrived; until then the sink holds them.
std::unique_ptr<WeightSink> NewPackingSink(const Linear& linear, CopyToDevice copy);
// Host memory of such a sink: codes, a byte each, their scalings, and the copied data.
int64_t PackingHostBytes(const LinearShape& shape);

}  // namespace bulkhead
