// The units of a step have room in what was planned, whatever the threads.
#include "kernels/attend/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace bulkhead {
namespace {

// Sequences that decode behind long contexts, and a prompt from position 0 on.
void ExpectRoom(int num_heads, bool in_bf16, int num_threads, int decoding, int prompt) {
  const std::vector<int32_t> head_to_kv(num_heads, 0);
  const HeadLayout heads{num_heads, 1, 128, head_to_kv.data()};
  StepLimits limits{.max_num_batched_tokens = 512, .max_num_seqs = 16, .max_model_len = 128 * 1024};
  limits.attention_in_bf16 = in_bf16;
  const AttentionSizes sizes(limits, heads);
  std::vector<int32_t> begin, slot, position;
  for (int i = 0; i < decoding; ++i) {
    begin.push_back(i);
    slot.push_back(i);
    position.push_back(limits.max_model_len - 1);
  }
  begin.push_back(decoding);
  slot.push_back(decoding);
  for (int i = 0; i < prompt; ++i) position.push_back(i);
  begin.push_back(decoding + prompt);
  StepIndex index;
  index.num_seqs = decoding + 1;
  index.num_tokens = decoding + prompt;
  index.seq_begin = begin.data();
  index.seq_slot = slot.data();
  index.position = position.data();
  std::vector<AttentionUnit> units(sizes.max_tiles);
  const int64_t count = PlanAttention(index, heads, {}, num_threads, sizes, absl::MakeSpan(units));
  EXPECT_GE(count, decoding + 1);
  EXPECT_LE(count, sizes.max_tiles);
}

TEST(AttentionPlan, UnitsOfAnyStepHaveRoom) {
  for (const bool in_bf16 : {false, true}) {
    for (const int num_heads : {1, 17, 24, 25, 32, 48, 64}) {
      for (const int num_threads : {1, 3, 16, 48, 56, 63, 64}) {
        for (const int tokens : {1, 100, 192, 255, 256, 383, 448, 503, 511, 512}) {
          for (const int decoding : {0, 1, 4, 15}) {
            if (tokens <= decoding) continue;
            SCOPED_TRACE(testing::Message()
                         << num_heads << " heads, " << num_threads << " threads, " << tokens
                         << " tokens, " << decoding << " decode");
            ExpectRoom(num_heads, in_bf16, num_threads, decoding, tokens - decoding);
          }
        }
      }
    }
  }
}

TEST(AttentionPlan, ATileHasAsManyTokensAsTheLargestPartOfHeadsAllows) {
  for (const int num_heads : {1, 6, 64, 300}) {
    for (const int num_kv_heads : {1, 2, 3, 64, 300}) {
      if (num_kv_heads > num_heads) continue;
      SCOPED_TRACE(testing::Message() << num_heads << " heads, " << num_kv_heads << " KV heads");
      std::vector<int32_t> head_to_kv;
      for (int i = 0; i < num_heads; ++i) head_to_kv.push_back(i * num_kv_heads / num_heads);
      const HeadLayout heads{num_heads, num_kv_heads, 128, head_to_kv.data()};
      int largest = 0;
      for (int i = 0; i < NumHeadParts(heads); ++i) {
        largest = std::max(largest, HeadPartOf(heads, i).count);
      }
      const AttentionSizes sizes({.max_num_batched_tokens = 512, .max_num_seqs = 16}, heads);
      EXPECT_EQ(sizes.tile_tokens, std::max(1, kAttentionRows / largest));
    }
  }
}

}  // namespace
}  // namespace bulkhead
