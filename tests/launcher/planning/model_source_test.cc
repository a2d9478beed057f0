#include "launcher/planning/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "launcher/wire.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ModelSource, TheCacheIsInFp8WhereTheCheckpointSaysSoUnlessAFlagDoes) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto format = [&] { return FormatsOf(options, *source)->kv_format; };
  EXPECT_EQ(format(), KvFormat::kBF16);
  options.kv_cache_dtype = KvFormat::kFP8;
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.kv_cache_dtype.reset();
  source->config.model.quantization.fp8_kv = true;
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.dtype = DType::kF32;  // of weights
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.kv_cache_dtype = KvFormat::kF16;
  EXPECT_EQ(format(), KvFormat::kF16);
}

TEST(ModelSource, ADraftModelHasTheFlagsThatAreForBothAndItsOwnLength) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  options.speculative = {{.num_speculative_tokens = 3}, options.model};
  options.weight_dtype = WeightFormat::kInt8;
  options.kv_cache_dtype = KvFormat::kInt8;
  options.all_reduce_dtype = DType::kBF16;
  options.limits.max_model_len = 100;
  const auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const ModelLimits& draft = source->draft->formats;
  EXPECT_EQ(draft.weights.layers, WeightFormat::kBF16);
  EXPECT_EQ(draft.kv_format, KvFormat::kInt8);
  EXPECT_EQ(draft.activation, ActivationDType::kInt8);  // one backend computes for both
  EXPECT_EQ(draft.sum_dtype, DType::kBF16);             // and one communicator sums
  EXPECT_EQ(source->formats.sum_dtype, DType::kBF16);
  ModelLimits limits;
  limits.max_num_seqs = 4;
  limits.max_model_len = 4096;
  limits.max_num_batched_tokens = 2048;
  limits.kv_groups = {{.num_layers = 3}, {.num_layers = 3, .window = 64}};
  const ModelLimits own = DraftLimitsOf(*source->draft_shape(), limits);
  EXPECT_EQ(own.max_model_len, 2048);
  EXPECT_EQ(own.max_num_batched_tokens, 264);
  EXPECT_EQ(own.num_kv_groups(), 1);
}

TEST(ModelSource, ALengthBeyondTheModelsIsBlamedOnTheFlagsThatSayIt) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  options.limits.max_model_len = 4200;
  options.length_flags = "--input-len 4000 + --output-len 200";
  const absl::Status status = ReadModelSource(options, Weights::kOptional).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--input-len 4000 + --output-len 200: 4200 is more than the model's 2048"));
}

TEST(ModelSource, AMissingPartOfTheWeightsIsNamedWhereTheConfigIsEnough) {
  const std::string dir = testing::TempDir() + "/half_model";
  std::filesystem::create_directories(dir);
  std::filesystem::copy_file(BH_SOURCE_DIR "/examples/models/sample/config.json",
                             dir + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EngineOptions options;
  options.model = dir;
  const auto alone = ReadModelSource(options, Weights::kOptional);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->config.warnings, IsEmpty());
  std::ofstream(dir + "/model.safetensors.index.json")
      << R"({"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}})";
  const auto half = ReadModelSource(options, Weights::kOptional);
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_THAT(half->config.warnings,
              ElementsAre(AllOf(HasSubstr("serve would not start: "),
                                HasSubstr("model-00002-of-00002.safetensors is missing"),
                                HasSubstr("plan is made from config.json only"))));
  EXPECT_THAT(std::string(ReadModelSource(options, Weights::kRequired).status().message()),
              HasSubstr("model-00002-of-00002.safetensors is missing"));
  std::filesystem::remove_all(dir);
}

TEST(ModelSource, AModelTooShortForAnAnswerIsRefusedByItsOwnField) {
  const std::string dir = testing::TempDir() + "/short_model";
  std::filesystem::create_directories(dir);
  std::ifstream in(BH_SOURCE_DIR "/examples/models/sample/config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["max_position_embeddings"] = 1;
  std::ofstream(dir + "/config.json") << config;
  EngineOptions options;
  options.model = dir;
  const absl::Status own = ReadModelSource(options, Weights::kOptional).status();
  EXPECT_EQ(ExitCodeOf(own), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(own.message()),
              HasSubstr("config.json: max_position_embeddings is 1, and must be at least 2"));
}

TEST(ModelSource, AnAnswersDefaultLengthIsWithinWhatWasPlanned) {
  ModelConfig model;
  model.max_position_embeddings = 100;
  EngineOptions options;
  EXPECT_TRUE(CheckDefaultMaxTokens(options, model, 100).ok());  // none is given
  options.default_max_tokens = 100;
  EXPECT_TRUE(CheckDefaultMaxTokens(options, model, 100).ok());
  const absl::Status less = CheckDefaultMaxTokens(options, model, 60);
  EXPECT_EQ(ExitCodeOf(less), ExitCode::kUsage);
  EXPECT_EQ(less.message(),
            "--default-max-tokens: 100 is more than max_model_len 60, which is what fits in "
            "memory; it holds prompt and answer: give less");
  options.default_max_tokens = 101;
  EXPECT_THAT(std::string(CheckDefaultMaxTokens(options, model, 100).message()),
              HasSubstr("101 is more than max_model_len 100, the model's own; "));
}

TEST(ModelSource, ActivationsInBf16AreForWeightsInBf16) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  const auto refusal = [&] {
    const absl::Status status = ReadModelSource(options, Weights::kRequired).status();
    EXPECT_TRUE(status.ok() || ExitCodeOf(status) == ExitCode::kUsage) << status;
    return std::string(status.message());
  };
  for (const auto& [activation, name] :
       {std::pair(ActivationDType::kBf16, "bf16"), {ActivationDType::kBf16Amx, "bf16-amx"}}) {
    options.activation_dtype = activation;
    options.dtype.reset();
    options.weight_dtype.reset();
    EXPECT_EQ(refusal(), "");
    options.dtype = DType::kF32;
    EXPECT_EQ(refusal(), absl::StrCat("--activation-dtype ", name,
                                      " is for weights in bfloat16, and these "
                                      "are float32; also give --dtype bfloat16"));
    options.weight_dtype = WeightFormat::kInt8;
    EXPECT_THAT(refusal(), AllOf(HasSubstr(absl::StrCat("--activation-dtype ", name, " is for")),
                                 HasSubstr("; leave it out")));
  }
}

TEST(ModelSource, ActivationsInFp8AreForWeightsInFp8) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  options.activation_dtype = ActivationDType::kFp8;
  const absl::Status status = ReadModelSource(options, Weights::kRequired).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_EQ(status.message(),
            "--activation-dtype fp8 is for weights in fp8, and these are bfloat16; leave it out");

  nlohmann::json config = nlohmann::json::parse(std::ifstream(options.model + "/config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"},
                                   {"weight_block_size", {128, 128}}};
  options.model = testing::TempDir() + "in_fp8";
  std::filesystem::create_directory(options.model);
  std::ofstream(options.model + "/config.json") << config;
  const auto in_fp8 = ReadModelSource(options, Weights::kOptional);
  ASSERT_TRUE(in_fp8.ok()) << in_fp8.status();
  EXPECT_EQ(in_fp8->formats.activation, ActivationDType::kFp8);
  EXPECT_EQ(in_fp8->formats.attention, AttentionDType::kF32);

  // On GPUs, not on CPUs.
  EXPECT_TRUE(MakeGpuSizes(in_fp8->formats, in_fp8->config.model, false).ok());
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const absl::Status on_cpu = MakeBackend(options, {}, in_fp8->formats, *device).status();
  EXPECT_EQ(ExitCodeOf(on_cpu), ExitCode::kUsage);
  EXPECT_EQ(on_cpu.message(),
            "--activation-dtype fp8: CPUs have no products in fp8; leave it out, or add --device "
            "cuda");
}

TEST(ModelSource, AttentionInBf16IsForACacheInBf16) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  const auto attention = [&] {
    return ReadModelSource(options, Weights::kRequired)->formats.attention;
  };
  EXPECT_EQ(attention(), AttentionDType::kF32);
  options.dtype = DType::kBF16;
  options.activation_dtype = ActivationDType::kBf16Amx;
  EXPECT_EQ(attention(), AttentionDType::kBf16Amx);
  options.activation_dtype = ActivationDType::kBf16;
  EXPECT_EQ(attention(), AttentionDType::kBf16);
  options.attention_dtype = AttentionDType::kF32;
  EXPECT_EQ(attention(), AttentionDType::kF32);
  options.attention_dtype.reset();
  options.kv_cache_dtype = KvFormat::kInt8;
  EXPECT_EQ(attention(), AttentionDType::kF32);
  options.attention_dtype = AttentionDType::kBf16Amx;
  const absl::Status refused = ReadModelSource(options, Weights::kRequired).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
  EXPECT_EQ(refused.message(),
            "--attention-dtype bf16-amx is for a KV cache in bfloat16, and this one is int8; add "
            "--kv-cache-dtype bfloat16, or leave it out");
  options.attention_dtype = AttentionDType::kBf16;
  EXPECT_EQ(ReadModelSource(options, Weights::kRequired).status().message(),
            "--attention-dtype bf16 is for a KV cache in bfloat16, and this one is int8; add "
            "--kv-cache-dtype bfloat16, or leave it out");
}

TEST(ModelSource, AnMtpLayerThatIsNotThereIsRefusedByName) {
  const auto read = [](const std::string& model, Weights weights) {
    EngineOptions options;
    options.model = BH_SOURCE_DIR "/tests/data/models/" + model;
    options.speculative = {{.num_speculative_tokens = 1, .mtp = true}, ""};
    return ReadModelSource(options, weights);
  };
  const absl::Status none = read("llama3_gqa_bf16", Weights::kRequired).status();
  EXPECT_EQ(ExitCodeOf(none), ExitCode::kUsage);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("--speculative-config: the method mtp needs"),
                    HasSubstr("LlamaForCausalLM has none, as its config.json says"),
                    HasSubstr("choose the method \"ngram\"")));
  // Its config names one.
  const absl::Status missing = read("glm4_moe_bf16", Weights::kRequired).status();
  EXPECT_EQ(ExitCodeOf(missing), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("the layer for multi-token prediction: "),
                    HasSubstr("'model.layers.3.enorm.weight' is missing"),
                    HasSubstr("leave --speculative-config out")));
  EXPECT_THAT(std::string(read("qwen3_next_bf16", Weights::kRequired).status().message()),
              HasSubstr("'mtp.pre_fc_norm_embedding.weight' is missing"));
}

TEST(ModelSource, ADraftModelThatCannotBeIsRefusedByName) {
  const auto refusal = [](const std::string& model, const std::string& draft) {
    EngineOptions options;
    options.model = model;
    options.speculative = {{.num_speculative_tokens = 3}, draft};
    const absl::Status status = ReadModelSource(options, Weights::kRequired).status();
    EXPECT_EQ(ExitCodeOf(status),
              draft.ends_with("none") ? ExitCode::kModelRefused : ExitCode::kUsage);
    return std::string(status.message());
  };
  const std::string models = BH_SOURCE_DIR "/tests/data/models/";
  EXPECT_THAT(refusal(models + "llama3_gqa_bf16", models + "llama_uneven_f32"),
              AllOf(HasSubstr("--speculative-config: the draft model "), HasSubstr("llama_uneven"),
                    HasSubstr("vocab_size is 389, and the model's 384")));
  EXPECT_THAT(refusal(models + "llama3_gqa_bf16", models + "none"),
              HasSubstr("the draft model " + models + "none: no such model folder"));
}

TEST(ModelSource, AnAdapterWithoutAFolderIsNamed) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/tests/data/models/qwen2_bf16";
  options.lora_modules = {{.name = "sql", .dir = "/no/such"}};
  const absl::Status status = ReadModelSource(options, Weights::kRequired).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  EXPECT_EQ(status.message(), "--lora-modules: adapter 'sql': no such model folder: /no/such");
}

}  // namespace
}  // namespace bulkhead
