// The usual ways in which a download is not a checkpoint, each named with what to do.
#include "shard/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "shard/weight_loader.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

std::string ConfigError(const std::string& dir) {
  const auto config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs());
  EXPECT_FALSE(config.ok());
  return std::string(config.status().message());
}

std::string WeightsError(const std::string& dir) {
  const auto checkpoint = Checkpoint::Open(dir);
  EXPECT_FALSE(checkpoint.ok());
  return std::string(checkpoint.status().message());
}

TEST(ModelFolderTest, AGitLfsPointerIsNamedInEveryFile) {
  const TemporaryFolder folder;
  WriteFile(folder.File("config.json"), kPointer);
  EXPECT_THAT(ConfigError(folder.path()), HasSubstr("config.json is a Git LFS pointer"));
  WriteFile(folder.File("model.safetensors"), kPointer);
  EXPECT_THAT(WeightsError(folder.path()), HasSubstr("model.safetensors is a Git LFS pointer"));
}

TEST(ModelFolderTest, APointerInPlaceOfAnIndexOrAShardIsNamed) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors.index.json"), kPointer);
  EXPECT_THAT(WeightsError(folder.path()), HasSubstr("index.json is a Git LFS pointer"));
  WriteFile(folder.File("model.safetensors.index.json"),
            R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  WriteFile(folder.File("model-00001-of-00001.safetensors"), kPointer);
  EXPECT_THAT(WeightsError(folder.path()),
              HasSubstr("model-00001-of-00001.safetensors is a Git LFS pointer"));
}

TEST(ModelFolderTest, AnHtmlPageIsNamed) {
  const TemporaryFolder folder;
  WriteFile(folder.File("config.json"), "<!doctype html><html></html>");
  EXPECT_THAT(ConfigError(folder.path()), HasSubstr("config.json is an HTML page"));
  WriteFile(folder.File("model.safetensors"), "<!doctype html><html></html>");
  EXPECT_THAT(WeightsError(folder.path()), HasSubstr("model.safetensors is an HTML page"));
}

TEST(ModelFolderTest, AFolderOfGgufFilesIsNamed) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model-Q4_K_M.gguf"), "GGUF");
  EXPECT_THAT(ConfigError(folder.path()),
              AllOf(HasSubstr("config.json"), HasSubstr("model-Q4_K_M.gguf"),
                    HasSubstr("GGUF file, which is not read; give")));
  EXPECT_THAT(WeightsError(folder.path()), HasSubstr("GGUF file, which is not read; give"));
}

TEST(ModelFolderTest, AnAdapterIsNamedWithItsBaseModel) {
  const TemporaryFolder folder;
  WriteFile(folder.File("adapter_config.json"), R"({"base_model_name_or_path": "org/base-7b"})");
  EXPECT_THAT(ConfigError(folder.path()), AllOf(HasSubstr("an adapter (adapter_config.json) of "
                                                          "\"org/base-7b\""),
                                                HasSubstr("--lora-modules NAME=DIR")));
  EXPECT_THAT(WeightsError(folder.path()), HasSubstr("org/base-7b"));
}

TEST(ModelFolderTest, PickledWeightsAreNamedWithHowToConvertThem) {
  const TemporaryFolder folder;
  WriteFile(folder.File("pytorch_model-00002-of-00002.bin"), "PK");
  WriteFile(folder.File("pytorch_model-00001-of-00002.bin"), "PK");
  EXPECT_THAT(WeightsError(folder.path()),
              AllOf(HasSubstr("pytorch_model-00001-of-00002.bin can be converted"),
                    HasSubstr("save_pretrained")));
}

TEST(ModelFolderTest, AShardWithoutItsIndexIsNamed) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model-00001-of-00002.safetensors"), "");
  EXPECT_THAT(WeightsError(folder.path()),
              HasSubstr("; model-00001-of-00002.safetensors is there: fetch the index as well"));
}

TEST(ModelFolderTest, ASentencePieceModelIsNamedWithHowToMakeATokenizer) {
  const TemporaryFolder folder;
  EXPECT_EQ(HintForMissingTokenizer(folder.path()), "");
  WriteFile(folder.File("tokenizer.model"), "x");
  EXPECT_THAT(HintForMissingTokenizer(folder.path()),
              AllOf(HasSubstr("AutoTokenizer"), HasSubstr(folder.path())));
}

TEST(ModelFolderTest, WhereNothingTellsNothingIsSaid) {
  const TemporaryFolder folder;
  EXPECT_EQ(HintForMissingConfig(folder.path()), "");
  EXPECT_EQ(HintForMissingWeights(folder.path()), "");
  EXPECT_THAT(ConfigError(folder.path()), HasSubstr("cannot open"));
}

TEST(ModelFolderTest, ModelOptimizersOwnFileSaysHowWeightsAreQuantised) {
  const std::string llama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8,
      "vocab_size": 384, "max_position_embeddings": 256, "rms_norm_eps": 1e-5)";
  const TemporaryFolder folder;
  const auto read = [&](const std::string& modelopt) {
    WriteFile(folder.File("hf_quant_config.json"), modelopt);
    return ReadModelConfig(folder.path(), UnknownFields::kRefuse, AllFamilySpecs());
  };
  WriteFile(folder.File("config.json"), llama + "}");
  const auto fp8 = read(R"({"producer": {"name": "modelopt", "version": "0.19"}, "quantization":
      {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ(fp8->model.quantization.method, QuantizationConfig::Method::kFloatQuantized);
  EXPECT_TRUE(fp8->model.quantization.fp8_kv);
  const auto none = read(R"({"quantization": {"quant_algo": null}})");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->model.quantization.method, QuantizationConfig::Method::kNone);
  EXPECT_THAT(std::string(read("{}").status().message()),
              HasSubstr("hf_quant_config.json: quantization must be"));
  EXPECT_THAT(std::string(read(R"({"quantization": {"quant_algo": "W4A8"}})").status().message()),
              AllOf(HasSubstr("quant_algo"), HasSubstr("W4A8")));
  const std::string own = R"(, "quantization_config": {"quant_method": "modelopt",
      "quant_algo": "NVFP4"}})";
  WriteFile(folder.File("config.json"), llama + own);
  const auto both = read("{}");  // config.json's own holds
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->model.quantization.method, QuantizationConfig::Method::kModelOptNvfp4);
}

}  // namespace
}  // namespace bulkhead
