// Blocks of KV leave one arena and enter another under other ids: decoding goes on there with the
// same bits.
#include "memory/kv_block_copy.h"

#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "memory/kv_format_name.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"

namespace bulkhead {
namespace {

class KvBlockCopyTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, KvBlockCopyTest,
                         testing::Values("mistral_window_bf16", "gemma4_bf16"));

TEST_P(KvBlockCopyTest, DecodingGoesOnInAnotherArena) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  const Golden golden = ReadGolden(dir);
  const std::vector<int32_t>& prompt = golden.prompts[2];
  const auto size = static_cast<int>(prompt.size());
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kInt4, KvFormat::kFP8}) {
    SCOPED_TRACE(KvFormatName(format));
    ModelLimits limits = LoadedRunner::Limits(config);
    limits.kv_format = format;
    LoadedRunner from(dir, plan, limits, *group);
    limits.num_kv_blocks = 40;  // of another size: ids and places differ
    LoadedRunner to(dir, plan, limits, *group);
    limits.num_kv_blocks = 64;
    RunHere(*from, MakeStep(limits, 1, {{1, 0, prompt, 1}}));
    const auto device = NewHostDevice(0);
    std::vector<BlockId> blocks;
    for (int i = 0; i <= size / limits.block_tokens; ++i) {
      blocks.push_back(37 - 2 * i);
      std::vector<std::byte> bytes(from->kv().block_bytes);
      ExportKvBlock(from->kv(), DefaultBlock(limits, 1, i), *device, bytes.data());
      ImportKvBlock(to->kv(), blocks.back(), *device, bytes.data());
    }
    for (int i = 0; i < 3; ++i) {  // within the last block
      const std::vector<int32_t> token = {golden.greedy_ids[2][i]};
      EXPECT_EQ(RunHere(*to, MakeStep(limits, 1 + i, {{0, size + i, token, 1, blocks}})).logits,
                RunHere(*from, MakeStep(limits, 2 + i, {{1, size + i, token, 1}})).logits);
    }
  }
}

}  // namespace
}  // namespace bulkhead
