#include "memory/kv_cache.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

KvGeometry Geometry() {
  KvGeometry geometry;
  geometry.num_layers = 3;
  geometry.kv_heads = 2;
  geometry.head_dim = 64;
  geometry.block_tokens = 16;
  geometry.format = KvFormat::kBF16;
  return geometry;
}

TEST(KvCacheTest, BytesFollowTheGeometry) {
  const KvGeometry geometry = Geometry();
  EXPECT_EQ(geometry.HeadBytes(), 2 * 64 * 16 * 2);
  EXPECT_EQ(geometry.BlockBytes(), 3 * 2 * 2 * 64 * 16 * 2);
  KvGeometry none = geometry;
  none.kv_heads = 0;
  EXPECT_EQ(none.BlockBytes(), 0);
}

TEST(KvCacheTest, EveryHeadHasItsOwnPlace) {
  const KvGeometry geometry = Geometry();
  constexpr int64_t kBlocks = 4;
  std::vector<std::byte> memory((kBlocks + 1) * geometry.BlockBytes());
  const KvArena arena{geometry, kBlocks, memory.data()};
  std::byte* next = memory.data();
  for (int layer = 0; layer < 3; ++layer) {
    for (int64_t block = 0; block <= kBlocks; ++block) {
      for (int64_t head = 0; head < 2; ++head) {
        EXPECT_EQ(arena.Layer(layer).Keys(block, head), next);
        EXPECT_EQ(arena.Layer(layer).Values(block, head), next + geometry.HeadBytes() / 2);
        next += geometry.HeadBytes();
      }
    }
  }
  EXPECT_EQ(next, memory.data() + memory.size());
}

}  // namespace
}  // namespace bulkhead
