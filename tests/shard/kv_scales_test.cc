// The scales of an fp8 cache: which tensors of a checkpoint they are, and which are refused.
#include "shard/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/exit_code.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class KvScales : public testing::Test {
 protected:
  KvScales() : config_(SmallConfig()) {
    config_.num_hidden_layers = 1;
    config_.layer_uses_window.assign(1, false);
    config_.num_attention_heads = 8;
    config_.num_key_value_heads = 4;
    config_.quantization.fp8_kv = true;
  }

  static RawTensor Tensor(const std::string& name, std::vector<int64_t> shape,
                          const std::vector<float>& values) {
    return {"model.layers.0.self_attn." + name, "F32", std::move(shape),
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
  }
  // Of the keys of a rank among `size`, from a checkpoint that has these tensors too.
  absl::StatusOr<std::vector<float>> Read(const std::vector<RawTensor>& scales, int size = 1,
                                          int rank = 0) {
    const TemporaryFolder folder;
    ModelConfig without = config_;
    without.quantization.fp8_kv = false;
    std::vector<RawTensor> tensors = RandomTensors(without, "F32", 1);
    tensors.insert(tensors.end(), scales.begin(), scales.end());
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
    auto checkpoint = Checkpoint::Open(folder.path());
    if (!checkpoint.ok()) return checkpoint.status();
    if (absl::Status known = (*checkpoint)->CheckAgainst(config_); !known.ok()) return known;
    const auto plan = ShardPlan::Create(config_, size);
    if (!plan.ok()) return plan.status();
    Checkpoint::Target target;
    target.row = RowOf(config_, "model.layers.0.self_attn.k_scale");
    std::vector<float> read(SliceOf(target.row, plan->rank(rank)).cols.size(), -1.0F);
    target.vector = read.data();
    const absl::Status loaded = (*checkpoint)->Load({&target, 1}, plan->rank(rank), 1, nullptr, {});
    if (!loaded.ok()) return loaded;
    return read;
  }
  void ExpectRefused(const std::vector<RawTensor>& scales, const std::string& words) {
    const absl::Status status = Read(scales).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  ModelConfig config_;
};

TEST_F(KvScales, ARankHasThoseOfItsHeads) {
  const std::vector<RawTensor> scales = {Tensor("k_proj.k_scale", {4}, {1, 2, 3, 4})};
  EXPECT_THAT(*Read(scales), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*Read(scales, 2, 1), ElementsAre(3, 4));
  EXPECT_THAT(*Read(scales, 8, 5), ElementsAre(3));
  EXPECT_THAT(*Read({Tensor("k_scale", {4, 1}, {1, 2, 3, 4})}, 4, 2), ElementsAre(3));
}

TEST_F(KvScales, OneNumberIsThatOfAllHeadsAndNoneIsOne) {
  EXPECT_THAT(*Read({Tensor("attn.k_scale", {}, {0.5F})}, 2), ElementsAre(0.5F, 0.5F));
  EXPECT_THAT(*Read({Tensor("kv_scale", {1}, {0.5F})}, 4), ElementsAre(0.5F));
  EXPECT_THAT(*Read({Tensor("v_scale", {1}, {0.5F})}, 2), ElementsAre(1, 1));
  EXPECT_THAT(*Read({}), ElementsAre(1, 1, 1, 1));
}

TEST_F(KvScales, ThoseOfQueriesAreKnownAndNotRead) {
  EXPECT_THAT(*Read({Tensor("q_scale", {1}, {0.5F})}, 4), ElementsAre(1));
  ExpectRefused({Tensor("x_scale", {1}, {0.5F})}, "has no place");
}

TEST_F(KvScales, OtherShapesAndNumbersAreRefusedByName) {
  ExpectRefused({Tensor("k_scale", {2}, {1, 1})}, "k_scale' has shape [2]");
  for (const float scale : {0.0F, -1.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    ExpectRefused({Tensor("k_scale", {1}, {scale})}, "k_scale': a scale of keys or values is");
  }
  RawTensor codes = Tensor("k_scale", {1}, {1});
  codes.format = "I32";
  ExpectRefused({codes}, "is I32");
}

TEST_F(KvScales, AreNotKnownWhereTheCheckpointSaysNothingOfThem) {
  config_.quantization.fp8_kv = false;
  const TemporaryFolder folder;
  std::vector<RawTensor> tensors = RandomTensors(config_, "F32", 1);
  tensors.push_back(Tensor("k_scale", {1}, {1}));
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
  auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(std::string((*checkpoint)->CheckAgainst(config_).message()),
              HasSubstr("has no place"));
}

}  // namespace
}  // namespace bulkhead
