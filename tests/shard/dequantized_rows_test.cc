// Codes as numbers: every layout against what its codes, zeros and scales say one by one, and parts
// of a matrix, the right way round and transposed.
#include "shard/dequantized_rows.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/packing/weight_quantizer.h"
#include "runtime/model/family.h"
#include "shard/weight_formats.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

class DequantizedRowsTest : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<float> Read(const QuantizedTensors& tensors, const TensorRow& row, Range rows,
                                 Range cols) {
    std::vector<std::byte> staging(DequantizedStagingBytes(tensors, row, rows, cols));
    const auto read = ReadDequantized(tensors, row, rows, cols, staging.data());
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rows(), rows.size());
    EXPECT_EQ(read->cols(), cols.size());
    const float* const from = read->F32(0);
    return {from, from + rows.size() * cols.size()};
  }

  const std::string dir_ = std::string(BH_TEST_DATA) + "/quantised/" + GetParam();
  const ModelConfig config_ = ReadModelConfig(dir_, UnknownFields::kWarn, AllFamilySpecs())->model;
  const TensorIndex index_ = *TensorIndex::Open(dir_);
};

TEST_P(DequantizedRowsTest, AreWhatTheBackendsMeanByTheCodes) {
  TensorRow row = RowOf(config_, "model.layers.0.mlp.down_proj.weight");
  row.held_as = HeldAs::kDequantized;
  const auto tensors = FindQuantized(index_, row, config_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const Range rows{3, 21}, cols{37, 101};
  const std::vector<float> got = Read(*tensors, row, rows, cols);
  std::vector<std::byte> staging(tensors->StagingBytes(cols, rows.size()));
  const QuantizedRows codes = *tensors->ReadRows(rows, cols, staging.data());
  const std::vector<int32_t> index = *tensors->ReadGroupIndex(cols);
  const Range groups = tensors->GroupsOf(cols);
  const ScaleFormat format = ScalesOf(config_);
  for (int64_t r = 0; r < rows.size(); ++r) {
    for (int64_t c = 0; c < cols.size(); ++c) {
      const int64_t group =
          index.empty() ? (cols.begin + c) / tensors->group_size - groups.begin : index[c];
      const int64_t at = r * groups.size() + group;
      WeightScaling scaling{codes.scales[at], tensors->is_fp4() ? kFp4Zero : codes.zeros[at],
                            format};
      if (codes.factors != nullptr) scaling.scale = Fp4ScaleBits(scaling.scale, codes.factors[r]);
      const uint8_t code = codes.codes[r * cols.size() + c];
      EXPECT_EQ(got[r * cols.size() + c],
                DequantizeWeight(tensors->is_fp4() ? kFp4Steps[code] : code, scaling));
    }
  }
}

TEST_P(DequantizedRowsTest, APartOfAHeadsMatrixIsThatPartTransposed) {
  TensorRow row = RowOf(config_, "model.layers.0.mlp.down_proj.weight");
  row.held_as = HeldAs::kDequantized;
  const auto tensors = FindQuantized(index_, row, config_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  // Outputs 40 to 56 of the file are the inputs of this head's matrix.
  TensorRow head = row;
  head.is_transposed = true;
  head.file_input_begin = 40;
  head.file_inputs = row.rows;
  head.file_size = head.rows = row.cols;
  head.cols = 16;
  const auto same = FindQuantized(index_, head, config_);
  ASSERT_TRUE(same.ok()) << same.status();
  const std::vector<float> want = Read(*tensors, row, {43, 54}, {37, 101});
  const std::vector<float> got = Read(*same, head, {37, 101}, {3, 14});
  for (int64_t i = 0; i < 11; ++i) {
    for (int64_t j = 0; j < 64; ++j) EXPECT_EQ(got[j * 11 + i], want[i * 64 + j]);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DequantizedRowsTest,
                         testing::Values("awq", "gptq", "gptq_act_order", "ct_int4_g32_asym",
                                         "ct_mxfp4", "ct_nvfp4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bulkhead
