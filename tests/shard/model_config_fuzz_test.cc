// Seeded mutations of good configs, and numbers raised to their limits: whatever comes out is a
// refusal, or a config whose numbers are safe.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"
#include "shard/weight_loader.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

constexpr const char* kTokens[] = {
    "-1",   "0",     "1e999", "1e308",   "NaN",     "null",
    "true", "\"x\"", "[]",    "{}",      "[[[[",    "18446744073709551616",
    "2.5",  ",",     "\"",    "\\u0000", "\\ud800", "999999999999",
    "\xff", "1",     "7",     "65536"};

std::string Mutated(std::string text, std::mt19937& random) {
  const int count = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < count; ++i) {
    const size_t at = random() % (text.size() + 1);
    switch (random() % 5) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << (random() % 8)));
        break;
      case 1:
        text.erase(at, random() % 20);
        break;
      case 2:
        text.insert(at, text.substr(random() % (text.size() + 1), random() % 40));
        break;
      case 3:
        text.insert(at, kTokens[random() % std::size(kTokens)]);
        break;
      default: {  // another value for some field, so that most of the text stays valid
        const size_t colon = text.find(':', at);
        if (colon == std::string::npos) break;
        const size_t end = text.find_first_of(",}\n", colon);
        text.replace(colon + 1, (end == std::string::npos ? text.size() : end) - colon - 1,
                     kTokens[random() % std::size(kTokens)]);
      }
    }
  }
  return text;
}

std::optional<ModelConfig> Accepted(const std::string& text) {
  auto parsed = ParseModelConfig(text, "", UnknownFields::kWarn, AllFamilySpecs());
  if (!parsed.ok()) return std::nullopt;
  return std::move(parsed->model);
}

// Of the number formats the widest; one that is turned lies in staging memory twice.
void ExpectRowsFitTheStaging(const ModelConfig& config) {
  for (const TensorRow& row : AllTensors(config)) {
    if (row.optional) continue;
    const int64_t bytes = row.cols * DTypeBytes(DType::kF32) * (row.is_transposed ? 2 : 1);
    ASSERT_LE(bytes, Checkpoint::kStagingBytes) << row.Name() << ", " << row.cols << " columns";
  }
}

// Doubles every number of `object`, a part of `config`, and sets every switch, as long as the
// config is accepted. How many times that was.
int RaiseNumbers(nlohmann::json& config, nlohmann::json& object, std::mt19937& random) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  std::shuffle(names.begin(), names.end(), random);
  int raised = 0;
  for (const std::string& name : names) {
    nlohmann::json& value = object[name];
    if (value.is_object()) raised += RaiseNumbers(config, value, random);
    // Layers are alike.
    if (!(value.is_number_integer() || value == false) || name == "num_hidden_layers") continue;
    for (int i = 0; i < 31; ++i) {
      const nlohmann::json before = value;
      value =
          before.is_boolean() ? nlohmann::json(true) : nlohmann::json(2 * before.get<int64_t>());
      if (before != value && Accepted(config.dump()).has_value()) {
        ++raised;
        continue;
      }
      value = before;
      break;
    }
  }
  return raised;
}

TEST(ModelConfigFuzzTest, RowsOfConfigsAtTheirLimitsFitTheStagingOfALoad) {
  const uint32_t seed = 78;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (const std::string& dir : FixtureDirs()) {
    SCOPED_TRACE(dir);
    nlohmann::json config = nlohmann::json::parse(ReadFile(dir + "/config.json"));
    int raised = RaiseNumbers(config, config, random);
    raised += RaiseNumbers(config, config, random);  // what another number allows since
    EXPECT_GT(raised, 80);
    const std::optional<ModelConfig> accepted = Accepted(config.dump());
    ASSERT_TRUE(accepted.has_value());
    SCOPED_TRACE(config.dump());
    ExpectRowsFitTheStaging(*accepted);
  }
}

TEST(ModelConfigFuzzTest, MutatedConfigsAreRefusedOrSafe) {
  std::vector<std::string> configs;
  for (const std::string& dir : FixtureDirs()) configs.push_back(ReadFile(dir + "/config.json"));
  const uint32_t seed = 77;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  int accepted = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = Mutated(configs[random() % configs.size()], random);
    const auto parsed =
        ParseModelConfig(text, round % 3 == 0 ? text : "", UnknownFields::kWarn, AllFamilySpecs());
    if (!parsed.ok()) {
      EXPECT_EQ(ExitCodeOf(parsed.status()), ExitCode::kModelRefused);
      EXPECT_FALSE(parsed.status().message().empty());
      continue;
    }
    ++accepted;
    const ModelConfig& config = parsed->model;
    ASSERT_EQ(config.num_attention_heads % config.num_key_value_heads, 0);
    ASSERT_EQ(config.head_dim % 2, 0);
    ASSERT_EQ(config.layer_uses_window.size(), static_cast<size_t>(config.num_hidden_layers));
    ASSERT_GT(config.rms_norm_eps, 0.0F);
    ASSERT_GE(config.rope.theta, 1.0);
    for (const int id : config.eos_token_ids) ASSERT_TRUE(id >= 0 && id < config.vocab_size);
    ExpectRowsFitTheStaging(config);
    const auto plan = ShardPlan::Create(config, 1 + static_cast<int>(random() % 8));
    if (!plan.ok()) {
      EXPECT_EQ(ExitCodeOf(plan.status()), ExitCode::kModelRefused);
    }
  }
  // Both outcomes were tried in earnest.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_LT(accepted, kRounds);
}

}  // namespace
}  // namespace bulkhead
