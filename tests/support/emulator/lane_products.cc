#include "tests/support/emulator/lane_products.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/simd/number_format.h"

namespace bulkhead::emulator {
namespace {

constexpr int kTileBytes = 1024;  // 8 rows of 128 bytes

// The 16 bytes i of a row are at i ^ row % 8.
int64_t Mixed(int64_t at) { return at ^ (at >> 7 & 7) << 4; }
int64_t Begin(uint64_t tiles) { return static_cast<int64_t>(tiles & 0x3FFF) << 4; }

float NumberAt(const std::byte* at, bool is_f16) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return is_f16 ? F32OfF16(bits) : F32OfBf16(bits);
}

}  // namespace

int64_t AtOfB(uint64_t tiles, int k, int column) {
  const auto column_step = static_cast<int64_t>(tiles >> 16 & 0x3FFF) << 4;
  return Mixed(Begin(tiles) + column / 64 * column_step + k / 8 * kTileBytes + k % 8 * 128 +
               column % 64 * 2);
}
int64_t AtOfRows(uint64_t tiles, int row, int k) {
  return Mixed(Begin(tiles) + row / 8 * kTileBytes + row % 8 * 128 + k * 2);
}

void LaneProducts::Reset() {
  open_ = false;
  begun_.clear();
  groups_.clear();
  sums_.clear();
}

void LaneProducts::Begin(const LaneProduct& product) {
  if (!sums_.contains(product.c)) {
    sums_[product.c].assign(product.c, product.c + product.count);
    std::fill_n(product.c, product.count, std::numeric_limits<float>::quiet_NaN());
  }
  begun_.push_back(product);
}

void LaneProducts::Commit() { groups_.push_back(std::exchange(begun_, {})); }

void LaneProducts::FinishOldest(const std::byte* shared, int warp, int lane) {
  const std::vector<LaneProduct> group = std::move(groups_.front());
  groups_.pop_front();
  for (const LaneProduct& product : group) {
    float a[2][16];
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * warp + lane / 4 + 8 * i;
      for (int k = 0; k < 16; ++k) {
        const void* const at =
            product.a_is_shared
                ? static_cast<const void*>(shared + AtOfRows(product.shared_a, row, k))
                : &product.a[i][k];
        a[i][k] = NumberAt(static_cast<const std::byte*>(at), product.is_f16);
      }
    }
    std::vector<float>& sums = sums_.at(product.c);
    if (!product.add) std::fill(sums.begin(), sums.end(), 0.0F);
    for (int t = 0; t < product.count / 4; ++t) {
      for (int e = 0; e < 2; ++e) {
        for (int k = 0; k < 16; ++k) {
          const int column = 8 * t + lane % 4 * 2 + e;
          const int64_t at =
              product.b_is_rows ? AtOfRows(product.b, column, k) : AtOfB(product.b, k, column);
          const float b = NumberAt(shared + at, product.is_f16);
          for (int i = 0; i < 2; ++i) sums[4 * t + 2 * i + e] += a[i][k] * b;
        }
      }
    }
  }
  for (const LaneProduct& product : group) {
    const auto has = [&](const std::vector<LaneProduct>& products) {
      return std::any_of(products.begin(), products.end(),
                         [&](const LaneProduct& other) { return other.c == product.c; });
    };
    if (!sums_.contains(product.c) || has(begun_) ||
        std::any_of(groups_.begin(), groups_.end(), has)) {
      continue;
    }
    std::copy(sums_[product.c].begin(), sums_[product.c].end(), product.c);
    sums_.erase(product.c);
  }
}

}  // namespace bulkhead::emulator
