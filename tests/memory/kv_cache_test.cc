#include "memory/kv_cache.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

KvGeometry Geometry() {
  KvGeometry geometry;
  geometry.kv_heads = 2;
  geometry.head_dim = 64;
  geometry.block_tokens = 16;
  geometry.format = KvFormat::kBF16;
  return geometry;
}

TEST(KvCacheTest, BytesFollowTheGeometry) {
  const KvGeometry geometry = Geometry();
  EXPECT_EQ(geometry.HeadBytes(), 2 * 64 * 16 * 2);
  EXPECT_EQ(geometry.LayerBlockBytes(), 2 * 2 * 64 * 16 * 2);
  KvGeometry none = geometry;
  none.kv_heads = 0;
  EXPECT_EQ(none.LayerBlockBytes(), 0);
}

TEST(KvCacheTest, BytesAreThoseOfThePublishedCase) {
  // Llama-2-7B in f16: a block of 64 tokens takes 33,554,432 bytes on one rank, half of it on two.
  constexpr int kLayers = 32;
  KvGeometry geometry{
      .kv_heads = 32, .head_dim = 128, .block_tokens = 64, .format = KvFormat::kF16};
  EXPECT_EQ(kLayers * geometry.LayerBlockBytes(), 33554432);
  geometry.kv_heads = 16;
  EXPECT_EQ(kLayers * geometry.LayerBlockBytes(), 16777216);
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
        KvGeometry geometry{.kv_heads = model.kv_heads / ranks,
                            .head_dim = model.head_dim,
                            .block_tokens = block_tokens,
                            .format = KvFormat::kInt8};
        EXPECT_EQ(model.layers * geometry.LayerBlockBytes() * ranks,
                  block_tokens * model.int8_bytes);
        const int64_t per_head = 2 * block_tokens * geometry.kv_heads;
        EXPECT_EQ(geometry.LayerBlockBytes() - 4 * per_head, per_head * model.head_dim);
        geometry.format = KvFormat::kFP8;
        EXPECT_EQ(geometry.LayerBlockBytes(), per_head * model.head_dim);
        geometry.format = KvFormat::kInt4;
        EXPECT_EQ(model.layers * geometry.LayerBlockBytes() * ranks,
                  block_tokens * model.int4_bytes);
      }
    }
  }
}

TEST(KvCacheTest, EveryPartOfEveryHeadHasItsOwnPlace) {
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    KvGeometry geometry = Geometry();
    geometry.format = format;
    KvGeometry wide = geometry;  // of a layer with other heads
    wide.kv_heads = 1;
    wide.head_dim = 96;
    const LayerPlace places[] = {
        {.geometry = geometry},
        {.offset_bytes = geometry.LayerBlockBytes(), .geometry = wide},
        {.offset_bytes = geometry.LayerBlockBytes() + wide.LayerBlockBytes(),
         .geometry = geometry}};
    constexpr int64_t kBlocks = 4;
    const int64_t block_bytes = 2 * geometry.LayerBlockBytes() + wide.LayerBlockBytes();
    std::vector<std::byte> memory((kBlocks + 1) * block_bytes);
    const KvArena arena{kBlocks, block_bytes, memory.data()};
    std::byte* next = memory.data();
    for (int64_t block = 0; block <= kBlocks; ++block) {
      for (const LayerPlace& place : places) {
        const KvLayerView view = arena.Layer(place);
        for (int64_t head = 0; head < place.geometry.kv_heads; ++head) {
          const int64_t keys_bytes = place.geometry.KeysBytes();
          EXPECT_EQ(view.Keys(block, head), next);
          EXPECT_EQ(view.Values(block, head), next + keys_bytes);
          EXPECT_EQ(reinterpret_cast<std::byte*>(view.Scaling(block, head)), next + 2 * keys_bytes);
          next += 2 * keys_bytes + (IsQuantized(format) ? 4 * 16 * 2 : 0);
        }
      }
    }
    EXPECT_EQ(next, memory.data() + memory.size());
  }
}

TEST(KvCacheDeathTest, AHeadWhoseCodesAreNotWholeBytesIsABug) {
  KvGeometry geometry = Geometry();
  geometry.format = KvFormat::kInt4;
  geometry.head_dim = 63;
  EXPECT_EXIT((void)geometry.LayerBlockBytes(), testing::ExitedWithCode(70), "kv_cache");
}

}  // namespace
}  // namespace bulkhead
