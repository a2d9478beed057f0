#include "kernels/matmul/bf16_check.h"

#include <cmath>
#include <cstring>
#include <random>

#include "base/log.h"
#include "kernels/matmul/op.h"

namespace bulkhead {
namespace {

constexpr int64_t kInputs = 8;
constexpr int64_t kRows = 4;
constexpr int kProducts = 100;

// Any bf16; or, three times of four, one near 1, so that sums cancel.
uint16_t Draw(std::mt19937& random) {
  const uint32_t bits = random();
  const auto any = static_cast<uint16_t>(bits >> 16);
  return bits % 4 == 0 ? any : static_cast<uint16_t>((any & 0x80FF) | 0x3F00);
}

bool Equal(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

bool Compare() {
  std::mt19937 random(20);
  for (int i = 0; i < kProducts; ++i) {
    float x[kRows * kInputs];
    uint16_t weight[kInputs * kPanelColumns];
    for (float& input : x) {
      const uint32_t bits = uint32_t{Draw(random)} << 16;
      std::memcpy(&input, &bits, sizeof(input));
    }
    for (uint16_t& number : weight) number = Draw(random);
    const int64_t k_borders[] = {0, kInputs};
    float pairs[kRows * PairFloats(kInputs)];
    float sums[2][kRows * kPanelColumns];
    for (const bool dots : {false, true}) {
      Product product{.x = x,
                      .x_stride = kInputs,
                      .x_rows = nullptr,
                      .weight = weight,
                      .format = PanelFormat::kBf16,
                      .in_bf16 = true,
                      .outputs = kPanelColumns,
                      .inputs = kInputs,
                      .k_borders = k_borders,
                      .num_slices = 1,
                      .out = sums[dots],
                      .out_stride = kPanelColumns,
                      .quantized = nullptr};
      (dots ? avx512bf16::RoundRows : avx512::RoundRows)(product, kRows, pairs);
      product.x = pairs;
      product.x_stride = PairFloats(kInputs);
      (dots ? avx512bf16::MultiplyFew : avx512::MultiplyFew)(product, {0, 1, 0, kRows, nullptr});
    }
    for (int64_t at = 0; at < kRows * kPanelColumns; ++at) {
      if (!Equal(sums[0][at], sums[1][at])) return false;
    }
  }
  return true;
}

}  // namespace

bool Bf16DotsAreFmas() {
  static const bool are = [] {
    const bool equal = Compare();
    if (!equal) {
      BH_LOG(kWarning)
          << "this CPU's vdpbf16ps rounds otherwise than fused multiply-adds: products "
             "in bf16 use those, and are slower";
    }
    return equal;
  }();
  return are;
}

}  // namespace bulkhead
