#include "shard/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "shard/family_spec.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr char kQ[] = "base_model.model.model.layers.1.self_attn.q_proj";
constexpr char kDown[] = "base_model.model.model.layers.0.mlp.down_proj";

RawTensor Zeros(const std::string& name, int64_t rows, int64_t cols) {
  return {name, "F32", {rows, cols}, std::string(rows * cols * 4, 0)};
}

// An adapter of SmallConfig's q_proj and down_proj, with what a test changes.
struct AdapterFolder {
  json config = {{"peft_type", "LORA"},
                 {"r", 4},
                 {"lora_alpha", 8},
                 {"bias", "none"},
                 {"use_dora", false},
                 {"rank_pattern", {{"down_proj", 2}}},
                 {"alpha_pattern", json::object()}};
  std::vector<RawTensor> tensors = {
      Zeros(std::string(kQ) + ".lora_A.weight", 4, 12),
      Zeros(std::string(kQ) + ".lora_B.weight", 24, 4),
      Zeros(std::string(kDown) + ".lora_A.weight", 2, 20),
      Zeros(std::string(kDown) + ".lora_B.weight", 12, 2),
  };

  absl::StatusOr<AdapterConfig> Read(const ModelConfig& model = SmallConfig()) const {
    const TemporaryFolder folder;
    WriteFile(folder.File("adapter_config.json"), config.dump());
    WriteFile(folder.File("adapter_model.safetensors"), SafetensorsBytes(tensors));
    return ReadAdapter("sql", folder.path(), model, AdaptableRows(model));
  }
};

TEST(AdapterTest, RanksAreThoseOfTheTensors) {
  const auto adapter = AdapterFolder().Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_THAT(adapter->rank,
              ElementsAre(Pair("layers.0.mlp.down_proj", 2), Pair("layers.1.self_attn.q_proj", 4)));
  EXPECT_EQ(adapter->ScaleOf(4), 2);
  EXPECT_EQ(adapter->ScaleOf(2), 4);
  EXPECT_TRUE(adapter->unknown_fields.empty());
}

TEST(AdapterTest, NamesAreThoseOfTheTextPartWhereverItIs) {
  for (const char* prefix : {"base_model.model.model.language_model.", "base_model.model.",
                             "base_model.model.language_model.model."}) {
    SCOPED_TRACE(prefix);
    AdapterFolder folder;
    for (RawTensor& tensor : folder.tensors)
      tensor.name = prefix + tensor.name.substr(strlen("base_model.model.model."));
    EXPECT_EQ(folder.Read().status(), absl::OkStatus());
    const std::string tower = "base_model.model.model.vision_tower.encoder.layers.0.fc1.";
    folder.tensors.push_back(Zeros(tower + "lora_A.weight", 4, 12));
    EXPECT_THAT(std::string(folder.Read().status().message()), HasSubstr("vision_tower"));
    ModelConfig model = SmallConfig();
    FamilySpec spec = *model.family;
    spec.not_served = "multi_modal_projector.*,vision_tower.*";
    model.family = &spec;
    EXPECT_EQ(folder.Read(model).status(), absl::OkStatus());
  }
}

TEST(AdapterTest, RankStabilizedOnesAreDividedByTheRoot) {
  AdapterFolder folder;
  folder.config["use_rslora"] = true;
  folder.config["some_day"] = 3;
  const auto adapter = folder.Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ(adapter->ScaleOf(4), 4);
  EXPECT_THAT(adapter->unknown_fields, ElementsAre("some_day"));
}

TEST(AdapterTest, IsHeldInTheFormatOfTheLayersOrBf16) {
  const auto adapter = AdapterFolder().Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const auto plan = ShardPlan::Create(SmallConfig(), 1);
  const auto held = [&](const WeightFormats& formats) {
    return LinearShapeOf(AdapterTensors(*adapter, 1)[0], plan->rank(0), formats).format;
  };
  EXPECT_EQ(held(WeightFormats::Of(DType::kF32)), WeightFormat::kF32);
  EXPECT_EQ(held(WeightFormats::Of(DType::kF16)), WeightFormat::kF16);
  EXPECT_EQ(held(WeightFormats::Of(DType::kBF16)), WeightFormat::kBF16);
  EXPECT_EQ(held(WeightFormats::AtLoad(WeightFormat::kInt8)), WeightFormat::kBF16);
  WeightFormats awq = WeightFormats::Of(DType::kF16);
  awq.layers = WeightFormat::kInt4;
  EXPECT_EQ(held(awq), WeightFormat::kBF16);
}

TEST(AdapterTest, IsSplitAsItsModulesAre) {
  ModelConfig model = SmallConfig();
  const auto adapter = AdapterFolder().Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const auto plan = ShardPlan::Create(model, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const RankShard& shard = plan->rank(1);
  const std::vector<TensorRow> of_q = AdapterTensors(*adapter, 1);
  ASSERT_EQ(of_q.size(), 2);
  EXPECT_EQ(of_q[0].Name(), "layers.1.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(SliceOf(of_q[0], shard).cols.size(), 12);
  EXPECT_EQ(SliceOf(of_q[0], shard).rows.size(), 4);
  EXPECT_EQ(SliceOf(of_q[1], shard).rows.begin, 4 * shard.heads.begin);
  EXPECT_EQ(SliceOf(of_q[1], shard).cols.size(), 4);
  const std::vector<TensorRow> of_down = AdapterTensors(*adapter, 0);
  ASSERT_EQ(of_down.size(), 2);
  EXPECT_EQ(SliceOf(of_down[0], shard).cols.begin, shard.mlp.begin);
  EXPECT_EQ(SliceOf(of_down[1], shard).rows.size(), 12);
}

TEST(AdapterTest, OutputsLieWhereTheModuleHasThem) {
  AdapterFolder folder;
  const std::string v = "base_model.model.model.layers.1.self_attn.v_proj";
  folder.tensors.push_back(Zeros(v + ".lora_A.weight", 3, 12));
  folder.tensors.push_back(Zeros(v + ".lora_B.weight", 12, 3));
  const auto adapter = folder.Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const ModelConfig model = SmallConfig();
  const auto plan = ShardPlan::Create(model, 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<AdapterModule> modules =
      AdapterModules(*adapter, plan->rank(0), LayerTensors(model, 1));
  ASSERT_EQ(modules.size(), 2);
  EXPECT_EQ(modules[0].first_output, 0);
  EXPECT_EQ(modules[1].slot, modules[0].slot);
  EXPECT_EQ(modules[1].first_output, 24 + 12);  // behind q and k
}

TEST(AdapterTest, WhatIsNoPlainLoraIsRefusedByName) {
  struct Case {
    const char* what;
    std::function<void(AdapterFolder&)> change;
  };
  const Case cases[] = {
      {"peft_type", [](AdapterFolder& f) { f.config["peft_type"] = "IA3"; }},
      {"use_dora", [](AdapterFolder& f) { f.config["use_dora"] = true; }},
      {"bias", [](AdapterFolder& f) { f.config["bias"] = "all"; }},
      {"init_lora_weights",
       [](AdapterFolder& f) { f.config["init_lora_weights"] = "pissa_niter_4"; }},
      {"lora_alpha is missing", [](AdapterFolder& f) { f.config.erase("lora_alpha"); }},
      {"it needs two, and r = 4 rows", [](AdapterFolder& f) { f.config.erase("rank_pattern"); }},
      {"down_proj.lora_A.weight' is missing",
       [](AdapterFolder& f) { f.tensors.erase(f.tensors.begin() + 2); }},
      {"are of the same module",
       [](AdapterFolder& f) {
         f.tensors.push_back(f.tensors[0]);
         f.tensors.back().name = "base_model.model.layers.1.self_attn.q_proj.lora_A.weight";
       }},
      {"modules_to_save", [](AdapterFolder& f) { f.config["modules_to_save"] = {"lm_head"}; }},
      {"alpha_pattern",
       [](AdapterFolder& f) {
         f.config["alpha_pattern"] = {{"q_proj", 3}};
       }},
      {"r is 0", [](AdapterFolder& f) { f.config["r"] = 0; }},
      {"lora_alpha", [](AdapterFolder& f) { f.config["lora_alpha"] = "8"; }},
      {"lora_embedding_A",
       [](AdapterFolder& f) {
         f.tensors.push_back(Zeros("base_model.model.model.embed_tokens.lora_embedding_A", 4, 23));
       }},
      {"lm_head",
       [](AdapterFolder& f) {
         f.tensors.push_back(Zeros("base_model.model.lm_head.lora_A.weight", 4, 12));
       }},
      {"layers.7",
       [](AdapterFolder& f) {
         f.tensors.push_back(
             Zeros("base_model.model.model.layers.7.mlp.up_proj.lora_A.weight", 4, 12));
       }},
      {"down_proj.lora_B.weight' is missing", [](AdapterFolder& f) { f.tensors.pop_back(); }},
      {"q_proj.lora_B.weight' has shape [23, 4]",
       [](AdapterFolder& f) { f.tensors[1] = Zeros(std::string(kQ) + ".lora_B.weight", 23, 4); }},
      {"q_proj.lora_A.weight' has 2 dimensions and 13 rows",
       [](AdapterFolder& f) { f.tensors[0] = Zeros(std::string(kQ) + ".lora_A.weight", 13, 12); }},
      {"has 2 dimensions and 14 rows; it needs two, and from 1 to 12 rows",
       [](AdapterFolder& f) {  // more than hidden_size, and as r says
         f.config.erase("rank_pattern");
         f.config["r"] = 14;
         f.tensors = {Zeros(std::string(kQ) + ".lora_A.weight", 14, 12),
                      Zeros(std::string(kQ) + ".lora_B.weight", 24, 14)};
       }},
      {"no tensors of the layers", [](AdapterFolder& f) { f.tensors.clear(); }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    AdapterFolder folder;
    test.change(folder);
    const absl::Status status = folder.Read().status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("adapter 'sql'"), HasSubstr(test.what)));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  }
}

TEST(AdapterTest, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  const auto error = [&] {
    const ModelConfig model = SmallConfig();
    return std::string(
        ReadAdapter("sql", folder.path(), model, AdaptableRows(model)).status().message());
  };
  EXPECT_THAT(error(), HasSubstr("adapter_config.json"));
  WriteFile(folder.File("adapter_config.json"), R"({"r": 4, "lora_alpha": 8})");
  EXPECT_THAT(error(), HasSubstr("has no adapter_model.safetensors"));
}

}  // namespace
}  // namespace bulkhead
