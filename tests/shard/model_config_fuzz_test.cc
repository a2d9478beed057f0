// Seeded mutations of good configs: whatever comes out is a refusal, or a config whose numbers are
// safe.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "base/exit_code.h"
#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
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
