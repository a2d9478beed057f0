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

TEST(KvCacheTest, BytesAreThoseOfThePublishedCase) {
  // Llama-2-7B in f16: a block of 64 tokens takes 33,554,432 bytes on one rank, half of it on two.
  KvGeometry geometry{.num_layers = 32,
                      .kv_heads = 32,
                      .head_dim = 128,
                      .block_tokens = 64,
                      .format = KvFormat::kF16};
  EXPECT_EQ(geometry.BlockBytes(), 33554432);
  geometry.kv_heads = 16;
  EXPECT_EQ(geometry.BlockBytes(), 16777216);
}

struct Model {
  const char* name;
  int layers, kv_heads, head_dim;
  int64_t int8_bytes, int4_bytes;  // of one token, all ranks
};

TEST(KvCacheTest, AQuantizedTokenTakesItsCodesAndFourBytesForEachKeyAndValue) {
  // L * 2 * k * (d q / 8 + 4)
  for (const Model& model :
       {Model{"Llama-2-7B", 32, 32, 128, 270336, 139264},
        Model{"Llama-3-8B", 32, 8, 128, 67584, 34816},
        Model{"Llama-3-70B", 80, 8, 128, 168960, 87040}, Model{"Qwen2-0.5B", 24, 2, 64, 6528, 3456},
        Model{"phi-2", 32, 32, 80, 172032, 90112}}) {
    for (const int ranks : {1, 2}) {
      for (const int block_tokens : {16, 64, 256}) {
        SCOPED_TRACE(model.name);
        KvGeometry geometry{.num_layers = model.layers,
                            .kv_heads = model.kv_heads / ranks,
                            .head_dim = model.head_dim,
                            .block_tokens = block_tokens,
                            .format = KvFormat::kInt8};
        EXPECT_EQ(geometry.BlockBytes() * ranks, block_tokens * model.int8_bytes);
        const int64_t per_head = 2 * block_tokens * model.layers * geometry.kv_heads;
        EXPECT_EQ(geometry.BlockBytes() - 4 * per_head, per_head * model.head_dim);
        geometry.format = KvFormat::kFP8;
        EXPECT_EQ(geometry.BlockBytes(), per_head * model.head_dim);
        geometry.format = KvFormat::kInt4;
        EXPECT_EQ(geometry.BlockBytes() * ranks, block_tokens * model.int4_bytes);
      }
    }
  }
}

TEST(KvCacheTest, EveryPartOfEveryHeadHasItsOwnPlace) {
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    KvGeometry geometry = Geometry();
    geometry.format = format;
    constexpr int64_t kBlocks = 4;
    std::vector<std::byte> memory((kBlocks + 1) * geometry.BlockBytes());
    const KvArena arena{geometry, kBlocks, memory.data()};
    std::byte* next = memory.data();
    for (int layer = 0; layer < 3; ++layer) {
      for (int64_t block = 0; block <= kBlocks; ++block) {
        for (int64_t head = 0; head < 2; ++head) {
          const KvLayerView view = arena.Layer(layer);
          EXPECT_EQ(view.Keys(block, head), next);
          EXPECT_EQ(view.Values(block, head), next + geometry.KeysBytes());
          EXPECT_EQ(reinterpret_cast<std::byte*>(view.Scaling(block, head)),
                    next + 2 * geometry.KeysBytes());
          next += 2 * geometry.KeysBytes() + (IsQuantized(format) ? 4 * 16 * 2 : 0);
        }
      }
    }
    EXPECT_EQ(next, memory.data() + memory.size());
  }
}

TEST(KvCacheTest, LayersOfASecondKindLieBehindTheOthers) {
  KvGeometry full = Geometry();
  full.num_layers = 2;
  full.kv_heads = 1;
  full.head_dim = 96;
  constexpr int64_t kBlocks = 4;
  std::vector<std::byte> memory((kBlocks + 1) * (Geometry().BlockBytes() + full.BlockBytes()));
  const KvArena arena{Geometry(), kBlocks, memory.data(), full};
  EXPECT_EQ(arena.BlockBytes() * (kBlocks + 1), static_cast<int64_t>(memory.size()));
  ASSERT_EQ(arena.num_layers(), 5);
  std::byte* next = memory.data();
  for (int layer = 0; layer < 5; ++layer) {
    const KvLayerView view = arena.Layer(layer);
    EXPECT_EQ(view.geometry.head_dim, layer < 3 ? 64 : 96);
    for (int64_t block = 0; block <= kBlocks; ++block) {
      EXPECT_EQ(view.Keys(block, 0), next);
      next += view.geometry.LayerBlockBytes();
    }
  }
  EXPECT_EQ(next, memory.data() + memory.size());
}

TEST(KvCacheDeathTest, AHeadWhoseCodesAreNotWholeBytesIsABug) {
  KvGeometry geometry = Geometry();
  geometry.format = KvFormat::kInt4;
  geometry.head_dim = 63;
  EXPECT_EXIT((void)geometry.BlockBytes(), testing::ExitedWithCode(70), "kv_cache");
}

}  // namespace
}  // namespace bulkhead
