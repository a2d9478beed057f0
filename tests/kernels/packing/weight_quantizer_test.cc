// Codes, scales and cells of quantised weights.
#include "kernels/packing/weight_quantizer.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/packing/quantized_packing.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

TEST(WeightQuantizerTest, ErrorIsAtMostHalfAStepWhateverTheMagnitude) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const float magnitude : {1e-7F, 1e-5F, 1e-3F, 1.0F, 1e4F}) {
      std::vector<float> weights = NormalFloats(128, 9);
      for (float& weight : weights) weight = magnitude * (weight + 0.5F);
      std::vector<uint8_t> codes(weights.size());
      const WeightScaling scaling =
          QuantizeWeights(weights, format, kPlainWeightLoops, absl::MakeSpan(codes));
      const float step = F32OfF16(scaling.scale);
      for (size_t i = 0; i < weights.size(); ++i) {
        const float slack =
            format == WeightFormat::kInt4 ? 1.01F : 0.51F;  // the zero is rounded, too
        EXPECT_NEAR(DequantizeWeight(codes[i], scaling), weights[i], slack * step) << magnitude;
      }
    }
  }
}

TEST(WeightQuantizerTest, ZerosStayZeroAndWhatIsNoNumberIsNoticed) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    std::vector<float> weights(64, 0.0F);
    std::vector<uint8_t> codes(weights.size());
    WeightScaling scaling =
        QuantizeWeights(weights, format, kPlainWeightLoops, absl::MakeSpan(codes));
    for (const uint8_t code : codes) EXPECT_EQ(DequantizeWeight(code, scaling), 0.0F);
    weights[3] = NAN;
    scaling = QuantizeWeights(weights, format, kPlainWeightLoops, absl::MakeSpan(codes));
    EXPECT_TRUE(std::isnan(DequantizeWeight(codes[0], scaling)));
    weights[3] = 1e30F;
    scaling = QuantizeWeights(weights, format, kPlainWeightLoops, absl::MakeSpan(codes));
    EXPECT_TRUE(std::isfinite(DequantizeWeight(codes[3], scaling)));
  }
}

TEST(WeightCellsTest, BordersOfGroupsAndSlicesCutAndPhaseShifts) {
  const LinearShape shape{1, 100, WeightFormat::kInt4, {0, 30, 100}, {32, 24, 0}};
  const std::vector<WeightCell> cells = CellsOf(shape);
  ASSERT_EQ(cells.size(), 5U);
  EXPECT_EQ(cells[0].end, 8);
  EXPECT_EQ(cells[1].end, 30);
  EXPECT_EQ(cells[2].begin, 30);
  EXPECT_EQ(cells[1].group, cells[2].group);  // cut by the slice's border
  EXPECT_EQ(cells[2].slice, 1);
  EXPECT_EQ(cells[4].end, 100);
  EXPECT_EQ(cells[4].group, 3);
  EXPECT_EQ(NumGroups(shape), 4);
}

}  // namespace
}  // namespace bulkhead
