#include "tests/support/emulator/wgmma_intrinsics.h"

#include <algorithm>
#include <limits>

#include "tests/support/emulator/block.h"
#include "tests/support/emulator/lane_products.h"

namespace bulkhead::cuda {
namespace {

using emulator::CurrentLane;
using emulator::Exchange;
using emulator::LaneProduct;

emulator::Block& TheBlock() { return *CurrentLane().block; }

// The warp's lanes exchange their factors.
struct Passed {
  uint32_t a[4] = {};
  uint64_t shared_a = 0;
  uint64_t b = 0;
};

// A warp checks all of b and its rows of a; for a product that begins, whether it sees their
// writes.
enum class Begun { kNow, kBefore };
void CheckReads(const LaneProduct& product, Begun begun) {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  const auto check = [&](int64_t at) {
    at = at / 16 * 16;
    begin = std::min(begin, at);
    end = std::max(end, at + 16);
    TheBlock().ReadForProduct(TheBlock().shared() + at);
  };
  const int columns = 2 * product.count;
  for (int i = LaneIndex(); i < 2 * columns; i += kWarp) {
    check(product.b_is_rows ? emulator::AtOfRows(product.b, i / 2, i % 2 * 8)
                            : emulator::AtOfB(product.b, i % 16, i / 16 * 8));
  }
  if (product.a_is_shared) {
    check(emulator::AtOfRows(product.shared_a, WarpIndex() % 4 * 16 + LaneIndex() / 2,
                             LaneIndex() % 2 * 8));
  }
  if (begun == Begun::kNow && end > 0) TheBlock().CheckFenced(begin, end);
}

void Begin(LaneProduct product, const Passed& passed) {
  emulator::Block& block = TheBlock();
  const Exchange& all = block.ExchangeInWarp("a product", &passed, sizeof(passed));
  for (const auto& brought : all) {
    Passed other;
    std::memcpy(&other, brought.data(), sizeof(other));
    if (other.b != passed.b || other.shared_a != passed.shared_a) {
      block.Fault("lanes multiply different tiles");
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) {
      Passed other;
      std::memcpy(&other, all[LaneIndex() / 4 * 4 + k % 8 / 2].data(), sizeof(other));
      product.a[i][k] = static_cast<uint16_t>(other.a[k / 8 * 2 + i] >> (k % 2 * 16));
    }
  }
  product.shared_a = passed.shared_a;
  product.b = passed.b;
  if (!CurrentLane().products.open()) block.Fault("a product without BeginProducts before it");
  CheckReads(product, Begun::kNow);
  CurrentLane().products.Begin(product);
}

}  // namespace

uint64_t TilesOf(const void* shared, int column_step) {
  TheBlock().CheckShared(shared, 32, "TilesOf");
  const auto at =
      static_cast<uint64_t>(static_cast<const std::byte*>(shared) - TheBlock().shared());
  if (at % 1024 / 128 != 0) TheBlock().Fault("tiles that begin in the middle of one");
  return at >> 4 | static_cast<uint64_t>(column_step) >> 4 << 16;
}

void FenceForProducts() { CurrentLane().unfenced = {}; }
void BeginProducts() { CurrentLane().products.Open(); }
void CommitProducts() { CurrentLane().products.Commit(); }

void WaitForProductsUntil(int left) {
  emulator::Lane& lane = CurrentLane();
  TheBlock().MeetWarp("WaitForProducts");
  lane.products.Close();
  while (lane.products.num_groups() > left) {
    for (const LaneProduct& product : lane.products.oldest()) CheckReads(product, Begun::kBefore);
    lane.products.FinishOldest(TheBlock().shared(), WarpIndex() % 4, LaneIndex());
  }
}

void BeginProduct(ProductKind kind, float* c, int count, const uint32_t (&a)[4], uint64_t b,
                  bool add) {
  Passed passed{.b = b};
  std::memcpy(passed.a, a, sizeof(a));
  Begin({.c = c, .count = count, .add = add, .is_f16 = kind.is_f16, .b_is_rows = kind.b_is_rows},
        passed);
}

void BeginProduct(ProductKind kind, float* c, int count, uint64_t a, uint64_t b, bool add) {
  Begin({.c = c,
         .count = count,
         .add = add,
         .is_f16 = kind.is_f16,
         .a_is_shared = true,
         .b_is_rows = kind.b_is_rows},
        {.shared_a = a, .b = b});
}

}  // namespace bulkhead::cuda
