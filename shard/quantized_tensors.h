// The tensors of a weight that a checkpoint holds in codes, and reading its rows as codes, scales
// and zeros. Layouts:
//   AWQ   qweight i32 [in, out / 8]: nibble j of a word is output 8w + (0, 2, 4, 6, 1, 3, 5, 7)[j]
//         qzeros  i32 [in / group, out / 8], same nibble order
//   GPTQ  qweight i32 [in / 8, out]: nibble j is input 8w + j
//         qzeros  i32 [in / group, out / 8]: nibble j is output 8w + j; words are stored minus
//                 0x11111111, except in gptq_v2
//         g_idx   i32 [in]: the group of each input
//         8 bits: bytes in place of nibbles, and zeros of 128 only
//   both  scales  f16 [in / group, out]
// compressed-tensors, scales in the checkpoint's own dtype:
//   pack-quantized  weight_packed i32 [out, in * bits / 32], first input in the lowest bits, + 8
//                   weight_scale [out, in / group]; weight_zero_point i32 [out / 8, in / group]:
//                   nibble j is output 8w + j; weight_g_idx as GPTQ's; weight_shape i64 [2]
//   int-quantized   weight i8 [out, in], weight_scale [out, in / group]
//   mxfp4-pack-quantized  weight_packed u8 [out, in / 2], even inputs in the low half
//                         weight_scale u8 [out, in / 32], e8m0
//   nvfp4-pack-quantized  weight_packed as mxfp4's; weight_scale e4m3 [out, in / 16]
//                         weight_global_scale f32 [1], a divisor of all scales
// modelopt (NVFP4)  weight u8 [out, in / 2], weight_scale e4m3 [out, in / 16]
//                   weight_scale_2 f32 [] or [1], a factor of all scales
//   float-quantized  weight e4m3 [out, in]; weight_scale f32, bf16 or f16 [out, 1], [1]
//                  or one per block
// fp8               the same, but weight_scale_inv [out / 128, in / 128], a factor of w
// gpt-oss (mxfp4)   NAME_blocks u8 [experts, out, in / 32, 16]
//                   NAME_scales u8 [experts, out, in / 32]
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/linear.h"
#include "shard/model_config.h"
#include "shard/tensor_index.h"
#include "shard/tensor_row.h"

namespace bulkhead {

struct QuantizedTensors {
  LocatedTensor codes;
  LocatedTensor scales;
  LocatedTensor zeros;  // for zeros and g_idx: entry is null if the checkpoint lacks it
  LocatedTensor g_idx;
  QuantizationConfig config;
  float factor = 0;     // of all scales, if they are in E4M3
  int group_size = 0;   // in memory (WeightFormats)
  int64_t outputs = 0;  // of the file's tensor; of all experts, if they share it
  int64_t inputs = 0;

  bool is_fp8() const {
    return config.method == Method::kFp8 || config.method == Method::kFloatQuantized;
  }
  bool is_fp4() const {
    return config.method == Method::kMxfp4 || config.method == Method::kMxfp4PackQuantized ||
           config.method == Method::kNvfp4PackQuantized || config.method == Method::kModelOptNvfp4;
  }
  bool is_awq() const { return config.method == QuantizationConfig::Method::kAwq; }
  // True: rows of the file are outputs; false: inputs.
  bool is_by_output() const { return !is_awq() && config.method != Method::kGptq; }
  // The groups that `cols` touch; with act order all of them.
  Range GroupsOf(Range cols) const;
  // Staging bytes of ReadRows for `rows` outputs of `cols`, and the bytes that it reads.
  int64_t StagingBytes(Range cols, int64_t rows) const;
  int64_t ReadBytes(Range cols, int64_t rows) const;

  // Outputs `rows` of inputs `cols`; the result points into `staging`. DATA_LOSS when the file
  // ends.
  absl::StatusOr<QuantizedRows> ReadRows(Range rows, Range cols, std::byte* staging) const;
  // The group of each input of `cols`; empty without act order. DATA_LOSS for an invalid index, or
  // one that is not ascending although the config says so.
  absl::StatusOr<std::vector<int32_t>> ReadGroupIndex(Range cols) const;

 private:
  using Method = QuantizationConfig::Method;
  struct Staging;

  Staging LayOut(std::byte* memory, int64_t rows, Range cols) const;
  // The groups of the file's scales that the groups of `cols` in memory come from.
  Range FileGroupsOf(Range cols) const;
  int64_t FileGroup(int64_t group) const;
  // The rows of the file's scales for these outputs.
  Range ScaleRowsOf(Range rows) const;
  // Codes in a 32-bit word, and the words that hold outputs (or inputs) [begin, end).
  int WordCodes() const { return 32 / config.bits; }
  Range WordsOf(Range range) const;
  // Bytes of a row that hold `cols`.
  int64_t RowBytes(Range cols) const;
  absl::Status ReadByInput(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadAwqCodes(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadGptqCodes(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadByOutput(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadCodesByOutput(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadScalesByOutput(Range rows, Range cols, const Staging& staging) const;
  absl::Status ReadZerosByOutput(Range rows, Range cols, const Staging& staging) const;
};

// Whether the checkpoint holds this tensor in codes.
bool IsHeldQuantized(const TensorRow& row, const ModelConfig& config);
// Whether the outputs of its matrix are the inputs of the codes.
bool IsTransposedInCodes(const TensorRow& row);

// Finds the tensors, with the shapes and number formats that `config` demands. NOT_FOUND,
// INVALID_ARGUMENT or UNIMPLEMENTED naming file and tensor.
absl::StatusOr<QuantizedTensors> FindQuantized(const TensorIndex& index, const TensorRow& row,
                                               const ModelConfig& config);

// The names of its tensors; g_idx and others that may be missing come last.
std::vector<std::string> QuantizedNamesOf(const TensorRow& row, const ModelConfig& config);

}  // namespace bulkhead
