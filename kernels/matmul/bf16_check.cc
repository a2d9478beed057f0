#include "kernels/matmul/bf16_check.h"

#include <bit>
#include <cmath>
#include <random>

#include "base/log.h"
#include "kernels/matmul/bf16_amx.h"
#include "kernels/matmul/op.h"

namespace bulkhead {
namespace {

constexpr int64_t kInputs = 8;
constexpr int64_t kRows = 4;
constexpr int kProducts = 100;

// Any bf16; or, three times out of four, one near 1, so that sums cancel.
uint16_t Draw(std::mt19937& random) {
  const uint32_t bits = random();
  const auto any = static_cast<uint16_t>(bits >> 16);
  return bits % 4 == 0 ? any : static_cast<uint16_t>((any & 0x80FF) | 0x3F00);
}

bool Equal(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

float F32Of(uint16_t number) { return std::bit_cast<float>(uint32_t{number} << 16); }

bool CompareDots() {
  std::mt19937 random(20);
  for (int i = 0; i < kProducts; ++i) {
    float x[kRows * kInputs];
    uint16_t weight[kInputs * kPanelColumns];
    for (float& input : x) input = F32Of(Draw(random));
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

// Three tiles of inputs, the last one partial.
constexpr int64_t kTileInputs = 2 * kBf16TileInputs + 7;
constexpr int kTileProducts = 50;

// Numbers near 1, so that sums cancel and each bit shows; every fourth product takes any number,
// every fourth weights that are denormal or have denormal products.
uint16_t DrawInput(std::mt19937& random, int product) {
  const auto any = static_cast<uint16_t>(random());
  return product % 4 == 0 ? any : static_cast<uint16_t>((any & 0x80FF) | 0x3F00);
}

uint16_t DrawWeight(std::mt19937& random, int product) {
  const uint16_t number = DrawInput(random, product);
  return product % 4 == 1 ? static_cast<uint16_t>(number & 0x80FF) : number;
}

}  // namespace

bool AreSumsOfEmulation(void (*multiply)(const Product& product, const uint16_t* inputs,
                                         const ProductPart& part)) {
  std::mt19937 random(21);
  for (int i = 0; i < kTileProducts; ++i) {
    float x[kBf16TileRows * kTileInputs];
    uint16_t weight[(kTileInputs + 1) * kPanelColumns];
    for (float& input : x) input = F32Of(DrawInput(random, i));
    for (uint16_t& number : weight) number = DrawWeight(random, i);
    const int64_t k_borders[] = {0, kTileInputs};
    alignas(64) uint16_t inputs[Bf16TileInputsOf(kBf16TileRows, kTileInputs)];
    alignas(64) float scratch[kBf16TileScratchFloats];
    float sums[2][kBf16TileRows * kPanelColumns];
    for (const bool emulated : {false, true}) {
      const Product product{.x = x,
                            .x_stride = kTileInputs,
                            .x_rows = nullptr,
                            .weight = weight,
                            .format = PanelFormat::kBf16,
                            .in_bf16 = false,
                            .outputs = kPanelColumns,
                            .inputs = kTileInputs,
                            .k_borders = k_borders,
                            .num_slices = 1,
                            .out = sums[emulated],
                            .out_stride = kPanelColumns,
                            .quantized = nullptr};
      for (int64_t row = 0; row < kBf16TileRows; ++row) {
        plain::RoundRowToTiles(product, row, inputs);
      }
      const ProductPart part{0, 1, 0, kBf16TileRows, scratch};
      (emulated ? plain::MultiplyBf16InTiles : multiply)(product, inputs, part);
    }
    for (int64_t at = 0; at < kBf16TileRows * kPanelColumns; ++at) {
      if (!Equal(sums[0][at], sums[1][at])) return false;
    }
  }
  return true;
}

bool Bf16TilesAreEmulated() {
  static const bool are = AreSumsOfEmulation(&avx512vnni::MultiplyBf16InTiles);
  return are;
}

bool Bf16DotsAreFmas() {
  static const bool are = [] {
    const bool equal = CompareDots();
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
