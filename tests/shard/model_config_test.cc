#include "shard/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json Llama() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 4, "vocab_size": 384, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
      "hidden_act": "silu", "eos_token_id": 2, "torch_dtype": "bfloat16", "rope_theta": 10000.0})");
}

json OfFamily(const char* architecture, const char* model_type) {
  json config = Llama();
  config["architectures"] = {architecture};
  config["model_type"] = model_type;
  return config;
}

json Mistral() { return OfFamily("MistralForCausalLM", "mistral"); }
json Qwen2() { return OfFamily("Qwen2ForCausalLM", "qwen2"); }
json Qwen3() { return OfFamily("Qwen3ForCausalLM", "qwen3"); }

json With(json config, const char* field, json value) {
  config[field] = std::move(value);
  return config;
}

absl::StatusOr<ParsedConfig> Parse(const json& config, const std::string& generation = "",
                                   UnknownFields unknown = UnknownFields::kWarn) {
  return ParseModelConfig(config.dump(), generation, unknown, AllFamilySpecs());
}

ModelConfig ParseOk(const json& config) {
  auto parsed = Parse(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->model : ModelConfig();
}

void ExpectRefused(const absl::StatusOr<ParsedConfig>& parsed, absl::StatusCode code,
                   const std::vector<std::string>& words) {
  ASSERT_FALSE(parsed.ok()) << "expected a refusal that says " << words.front();
  EXPECT_EQ(parsed.status().code(), code) << parsed.status();
  EXPECT_EQ(ExitCodeOf(parsed.status()), ExitCode::kModelRefused);
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(word));
  }
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

TEST(ModelConfigTest, EveryFixtureIsReadWithoutAWarning) {
  for (const std::string& dir : FixtureDirs()) {
    const auto parsed = ReadModelConfig(dir, UnknownFields::kRefuse, AllFamilySpecs());
    ASSERT_TRUE(parsed.ok()) << dir << ": " << parsed.status();
    if (parsed->model.family->has_text_config()) {
      EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("the text part is served"))) << dir;
    } else {
      EXPECT_THAT(parsed->warnings, IsEmpty()) << dir;
    }
  }
}

TEST(ModelConfigTest, FixturesMeanWhatTheySay) {
  const std::string models = BH_TEST_DATA "/models/";
  const ModelConfig uneven = FixtureConfig(models + "llama_uneven_f32");
  EXPECT_EQ(uneven.hidden_size, 72);
  EXPECT_EQ(uneven.head_dim, 24);
  EXPECT_EQ(uneven.dtype, DType::kF32);
  const ModelConfig llama3 = FixtureConfig(models + "llama3_gqa_bf16");  // the older spelling
  EXPECT_EQ(llama3.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama3.rope.theta, 500000.0);
  EXPECT_EQ(llama3.rope.factor, 8.0);
  EXPECT_EQ(llama3.rope.original_max_position_embeddings, 32);
  EXPECT_EQ(llama3.dtype, DType::kBF16);
  const ModelConfig tied = FixtureConfig(models + "llama32_tied_bf16");  // the newer one
  EXPECT_EQ(tied.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(tied.rope.factor, 32.0);
  EXPECT_TRUE(tied.tie_word_embeddings);
  EXPECT_EQ(FixtureConfig(models + "llama_linear_rope_f32").rope.factor, 4.0);
  const ModelConfig bias = FixtureConfig(models + "llama_bias_f32");
  EXPECT_TRUE(bias.qkv_bias && bias.o_bias && bias.mlp_bias);
  EXPECT_THAT(FixtureConfig(models + "llama_eos_list_bf16").eos_token_ids, ElementsAre(2, 7, 9));
  const ModelConfig window = FixtureConfig(models + "mistral_window_bf16");
  EXPECT_EQ(window.sliding_window, 24);
  EXPECT_EQ(window.WindowOf(0), 24);
  EXPECT_EQ(window.WindowOf(2), 24);
  EXPECT_EQ(FixtureConfig(models + "ministral3_bf16").WindowOf(1), 0);
  const ModelConfig qwen2 = FixtureConfig(models + "qwen2_bf16");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_EQ(qwen2.WindowOf(2), 0);
  const ModelConfig qwen3 = FixtureConfig(models + "qwen3_bf16");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(ModelConfigTest, OtherFamiliesAreRefusedByArchitectureAndType) {
  ExpectRefused(Parse(OfFamily("FooForCausalLM", "foo")), kUnsupported,
                {"FooForCausalLM", "foo", "LlamaForCausalLM (llama)", "Qwen3ForCausalLM (qwen3)"});
  ExpectRefused(Parse(OfFamily("Qwen2VLForConditionalGeneration", "qwen2_vl")), kUnsupported,
                {"(nearest is Qwen2"});
  ExpectRefused(Parse(OfFamily("LlamaForSequenceClassification", "llama")), kUnsupported,
                {"LlamaForSequenceClassification"});
  ExpectRefused(Parse(OfFamily("LlamaForCausalLM", "mistral")), kUnsupported, {"mistral"});
  ExpectRefused(Parse(json::object()), kInvalid, {"architectures", "model_type"});
}

TEST(ModelConfigTest, OneOfArchitectureAndTypeIsEnough) {
  json config = Llama();
  config.erase("model_type");
  EXPECT_EQ(ParseOk(config).model_type, "llama");
  config = Qwen2();
  config["architectures"] = nullptr;
  EXPECT_EQ(ParseOk(config).architecture, "Qwen2ForCausalLM");
}

TEST(ModelConfigTest, BothSpellingsSayTheSame) {
  json older = Llama();
  older["rope_theta"] = 5e5;
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  json newer = Llama();
  newer.erase("rope_theta");
  newer.erase("torch_dtype");
  newer["dtype"] = "bfloat16";
  newer["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}};
  const ModelConfig a = ParseOk(older);
  const ModelConfig b = ParseOk(newer);
  EXPECT_EQ(a.rope, b.rope);
  EXPECT_EQ(a.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(a.rope.theta, 5e5);
  EXPECT_EQ(a.dtype, b.dtype);
  older["rope_parameters"] = newer["rope_parameters"];
  EXPECT_EQ(ParseOk(older).rope, a.rope);  // both, when they agree
  older["rope_parameters"]["factor"] = 3.0;
  ExpectRefused(Parse(older), kInvalid, {"rope_scaling", "contradicts rope_parameters"});
  newer["rope_theta"] = 1e4;
  ExpectRefused(Parse(newer), kInvalid, {"rope_parameters.rope_theta", "10000"});
}

TEST(ModelConfigTest, DefaultsAreTheFamilys) {
  json config = Llama();
  for (const char* field : {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
                            "eos_token_id", "torch_dtype", "rope_theta"}) {
    config.erase(field);
  }
  const ModelConfig llama = ParseOk(config);
  EXPECT_EQ(llama.num_key_value_heads, 8);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6F);
  EXPECT_EQ(llama.rope, RopeConfig());
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_THAT(llama.eos_token_ids, IsEmpty());
  EXPECT_EQ(ParseOk(With(Llama(), "num_key_value_heads", nullptr)).num_key_value_heads, 8);
  EXPECT_EQ(ParseOk(With(Llama(), "head_dim", nullptr)).head_dim, 8);
  EXPECT_EQ(ParseOk(Qwen3()).head_dim, 128);
  EXPECT_EQ(ParseOk(Mistral()).sliding_window, 4096);
  EXPECT_EQ(ParseOk(With(Mistral(), "sliding_window", nullptr)).sliding_window, 0);
}

TEST(ModelConfigTest, QwensWindowIsSwitchedAndStartsAtALayer) {
  json config = Qwen2();
  config["sliding_window"] = 32;
  EXPECT_EQ(ParseOk(config).sliding_window, 0);
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;
  const ModelConfig upper = ParseOk(config);
  EXPECT_EQ(upper.sliding_window, 32);
  EXPECT_THAT(upper.layer_uses_window, ElementsAre(false, false, true));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(ParseOk(config).layer_uses_window, ElementsAre(true, false, false));
  config["layer_types"] = {"full_attention"};
  ExpectRefused(Parse(config), kInvalid, {"layer_types", "3"});
  config["layer_types"] = {"full_attention", "full_attention", "linear_attention"};
  ExpectRefused(Parse(config), kUnsupported, {"layer_types", "linear_attention"});
  config["use_sliding_window"] = false;
  config["layer_types"] = {"full_attention", "full_attention", "sliding_attention"};
  ExpectRefused(Parse(config), kInvalid, {"layer_types", "sliding_window is off"});
}

TEST(ModelConfigTest, EosIdsOfBothFilesAreOneSet) {
  const auto parsed = Parse(With(Llama(), "eos_token_id", {7, 2}), R"({"eos_token_id": [2, 5]})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->model.eos_token_ids, ElementsAre(2, 5, 7));
  EXPECT_THAT(ParseOk(With(Llama(), "eos_token_id", nullptr)).eos_token_ids, IsEmpty());
  ExpectRefused(Parse(Llama(), R"({"eos_token_id": 384})"), kInvalid,
                {"generation_config.json", "eos_token_id", "384", "383"});
}

struct BadField {
  const char* field;
  const char* value;  // JSON text, which need not be valid
  std::vector<std::string> words;
  absl::StatusCode code = kInvalid;
};

// Replaces the field's value in the text, so that values that no JSON tree holds can be tried.
absl::StatusOr<ParsedConfig> ParseWithText(json config, const char* field, const char* value) {
  config[field] = "@@@";
  std::string text = config.dump();
  text.replace(text.find("\"@@@\""), 5, value);
  return ParseModelConfig(text, "", UnknownFields::kWarn, AllFamilySpecs());
}

TEST(ModelConfigTest, EveryNumberIsChecked) {
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value :
         {"0", "-1", "-9223372036854775808", "9223372036854775807", "18446744073709551615",
          "36893488147419103232", "4294967297", "2147483647", "1e30", "64.5", "64.0", "\"64\"",
          "[64]", "{}", "true"}) {
      ExpectRefused(ParseWithText(Llama(), field, value), kInvalid, {field, "from"});
    }
    for (const char* value : {"1e999", "-1e999", "NaN", "Infinity", "-Infinity"}) {
      ExpectRefused(ParseWithText(Llama(), field, value), kInvalid, {"config.json", field});
    }
  }
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                            "num_attention_heads"}) {
    ExpectRefused(ParseWithText(Llama(), field, "null"), kInvalid, {field, "null"});
    json config = Llama();
    config.erase(field);
    ExpectRefused(Parse(config), kInvalid, {field, "missing"});
  }
}

TEST(ModelConfigTest, ValuesOutsideTheirLimitsAreNamed) {
  const std::vector<BadField> cases = {
      {"rms_norm_eps", "0", {"rms_norm_eps", "from"}},
      {"rms_norm_eps", "-1e-5", {"rms_norm_eps"}},
      {"rms_norm_eps", "\"1e-5\"", {"rms_norm_eps"}},
      {"rms_norm_eps", "1e999", {"1e999", "not a finite number", "rms_norm_eps"}},
      {"rope_theta", "0", {"rope_theta"}},
      {"rope_theta", "1e300", {"rope_theta", "1e+300"}},
      {"num_key_value_heads", "3", {"num_attention_heads", "multiple of num_key_value_heads, 3"}},
      {"num_attention_heads", "12", {"hidden_size", "num_attention_heads, 12"}},
      {"head_dim", "7", {"head_dim is 7", "even"}},
      {"eos_token_id", "-1", {"eos_token_id", "-1", "383"}},
      {"eos_token_id", "[2, 384]", {"eos_token_id", "384"}},
      {"eos_token_id", "[[2]]", {"eos_token_id"}},
      {"eos_token_id", "\"2\"", {"eos_token_id"}},
      {"tie_word_embeddings", "1", {"tie_word_embeddings", "true or false"}},
      {"attention_bias", "\"yes\"", {"attention_bias"}},
      {"architectures", "\"LlamaForCausalLM\"", {"architectures", "list"}},
      {"architectures", "[1]", {"architectures"}},
      {"model_type", "3", {"model_type"}},
      {"rope_scaling", "[1]", {"rope_scaling", "object"}},
      {"rope_scaling", R"({"type": "linear"})", {"rope_scaling.factor is missing"}},
      {"rope_scaling", R"({"type": "linear", "factor": 0})", {"rope_scaling.factor is 0"}},
      {"rope_scaling", R"({"type": "linear", "rope_type": "default"})", {"rope_scaling.type"}},
      {"rope_scaling", R"({"rope_type": "llama3", "factor": 8})", {"rope_scaling.low_freq_factor"}},
      {"rope_scaling",
       R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 3,
           "original_max_position_embeddings": 32})",
       {"rope_scaling.high_freq_factor", "not be less"}},
      {"rope_scaling",
       R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": -32})",
       {"rope_scaling.original_max_position_embeddings", "-32"}}};
  for (const BadField& bad : cases) {
    ExpectRefused(ParseWithText(Llama(), bad.field, bad.value), bad.code, bad.words);
  }
}

TEST(ModelConfigTest, WhatIsNotComputedIsRefusedByNameAndValue) {
  const std::vector<BadField> cases = {
      {"hidden_act", "\"gelu\"", {"hidden_act", "gelu", "silu"}},
      {"hidden_activation", "\"gelu_pytorch_tanh\"", {"hidden_activation"}},
      {"rope_scaling", R"({"type": "dynamic", "factor": 2})", {"rope_scaling.type", "dynamic"}},
      {"rope_scaling", R"({"rope_type": "ntk", "factor": 2})", {"rope_scaling.rope_type", "ntk"}},
      {"rope_parameters",
       R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 64,
           "llama_4_scaling_beta": 0.1})",
       {"llama_4_scaling_beta", "0.1"}},
      {"rope_parameters",
       R"({"full_attention": {"rope_theta": 1e4}})",
       {"rope_parameters.full_attention"}},
      {"partial_rotary_factor", "0.5", {"partial_rotary_factor", "0.5"}},
      {"attn_logit_softcapping", "50.0", {"attn_logit_softcapping", "50"}},
      {"is_causal", "false", {"is_causal", "false"}},
      {"per_layer_config", R"({"0": {"head_dim": 32}})", {"per_layer_config"}},
      {"final_logit_softcapping", "30.0", {"final_logit_softcapping", "30"}},
      {"query_pre_attn_scalar", "16", {"query_pre_attn_scalar", "16"}},
      {"quantization_config", R"({"quant_method": "quip"})", {"quantization_config", "quip"}},
      {"num_local_experts", "8", {"num_local_experts", "8"}},
      {"embedding_multiplier", "12.0", {"embedding_multiplier", "12"}},
      {"sliding_window", "4096", {"sliding_window", "4096"}},
      {"torch_dtype", "\"float8_e4m3fn\"", {"torch_dtype", "float8_e4m3fn", "bfloat16"}}};
  for (const BadField& bad : cases) {
    ExpectRefused(ParseWithText(Llama(), bad.field, bad.value), kUnsupported, bad.words);
  }
  ExpectRefused(Parse(With(Mistral(), "attention_bias", true)), kUnsupported, {"attention_bias"});
  ExpectRefused(Parse(With(Qwen3(), "mlp_bias", true)), kUnsupported, {"mlp_bias"});
}

TEST(ModelConfigTest, HarmlessValuesPassWithoutAWarning) {
  json config = Llama();
  config["attn_logit_softcapping"] = nullptr;
  config["quantization_config"] = nullptr;
  config["partial_rotary_factor"] = 1;
  config["query_pre_attn_scalar"] = 8;
  config["pretraining_tp"] = 2;
  config["attention_dropout"] = 0.1;
  config["use_cache"] = false;
  config["sliding_window"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["hidden_act"] = "swish";
  const auto parsed = Parse(config, "", UnknownFields::kRefuse);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST(ModelConfigTest, AnUnknownFieldIsNamedOnceOrRefused) {
  json config = With(Llama(), "flux_capacitance", 1.21);
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}, {"wobble", 1}};
  const auto parsed = Parse(config, R"({"mood": "calm"})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("config.json: flux_capacitance"),
                                            HasSubstr("rope_scaling.wobble"),
                                            HasSubstr("generation_config.json: mood")));
  ExpectRefused(Parse(config, "", UnknownFields::kRefuse), kInvalid,
                {"flux_capacitance", "not a known field"});
  ExpectRefused(Parse(Llama(), R"({"mood": "calm"})", UnknownFields::kRefuse), kInvalid, {"mood"});
}

TEST(ModelConfigTest, GenerationDefaultsAreReadAndChecked) {
  const auto parsed = Parse(Llama(), R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9,
      "top_k": 20, "min_p": null, "repetition_penalty": 1.1, "max_new_tokens": 99})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const GenerationDefaults& generation = parsed->generation;
  EXPECT_EQ(generation.do_sample, true);
  EXPECT_EQ(generation.temperature, 0.6);
  EXPECT_EQ(generation.top_p, 0.9);
  EXPECT_EQ(generation.top_k, 20);
  EXPECT_FALSE(generation.min_p.has_value());
  EXPECT_EQ(generation.repetition_penalty, 1.1);
  EXPECT_EQ(DefaultsText(generation),
            "temperature 0.6, top_p 0.9, top_k 20, repetition_penalty 1.1");
  EXPECT_EQ(DefaultsText({}), "");
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("max_new_tokens is 99")));
  for (const char* bad :
       {R"({"temperature": -1})", R"({"temperature": 1e999})", R"({"top_p": 0})",
        R"({"top_p": 1.5})", R"({"top_k": -2})", R"({"top_k": 2.5})", R"({"min_p": 2})",
        R"({"do_sample": 1})", R"({"repetition_penalty": 0})", R"([])", R"({)"}) {
    ExpectRefused(Parse(Llama(), bad), kInvalid, {"generation_config.json"});
  }
}

TEST(ModelConfigTest, HostileTextIsAnErrorAndNoMore) {
  const auto parse = [](const std::string& text) {
    return ParseModelConfig(text, "", UnknownFields::kWarn, AllFamilySpecs());
  };
  EXPECT_TRUE(parse("\xef\xbb\xbf" + Llama().dump()).ok());  // a byte order mark
  ExpectRefused(parse(""), kInvalid, {"config.json"});
  ExpectRefused(parse("null"), kInvalid, {"not an object"});
  ExpectRefused(parse("{\"a\": 1, \"b\": 2, \"a\": 3}"), kInvalid, {"'a' twice"});
  ExpectRefused(parse("{\"a\": " + std::string(100000, '[')), kInvalid, {"deeper than 64"});
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{\"a\":";
  ExpectRefused(parse(nested), kInvalid, {"deeper than 64"});
  ExpectRefused(parse("{\"hidden_size\": \"\xff\"}"), kInvalid, {"not valid JSON"});
  ExpectRefused(parse(Llama().dump() + "x"), kInvalid, {"not valid JSON"});
  ExpectRefused(parse(std::string("{\0}", 3)), kInvalid, {"not valid JSON"});
}

TEST(ModelConfigTest, AMissingOrEnormousFileIsNamed) {
  const TemporaryFolder folder;
  const auto missing = ReadModelConfig(folder.path(), UnknownFields::kWarn, AllFamilySpecs());
  ExpectRefused(missing, absl::StatusCode::kNotFound, {folder.File("config.json")});
  WriteFile(folder.File("config.json"), std::string((16 << 20) + 1, ' '));
  ExpectRefused(ReadModelConfig(folder.path(), UnknownFields::kWarn, AllFamilySpecs()), kInvalid,
                {folder.File("config.json"), "at most"});
  WriteFile(folder.File("config.json"), Llama().dump());
  EXPECT_TRUE(ReadModelConfig(folder.path(), UnknownFields::kWarn, AllFamilySpecs()).ok());
  WriteFile(folder.File("generation_config.json"), "{\"temperature\": \"hot\"}");
  ExpectRefused(ReadModelConfig(folder.path(), UnknownFields::kWarn, AllFamilySpecs()), kInvalid,
                {folder.File("generation_config.json"), "temperature", "hot"});
}

}  // namespace
}  // namespace bulkhead
