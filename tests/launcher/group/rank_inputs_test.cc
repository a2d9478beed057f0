#include "launcher/group/rank_inputs.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"

namespace bulkhead {
namespace {

using google::protobuf::util::MessageDifferencer;

RankTopology FourRanks() {
  RankTopology topology;
  topology.size = 4;
  topology.hosts = {"a", "a", "b", "b"};
  return topology;
}

// A rank's whose config has these fields.
internal::RankInputs With(const std::vector<std::string>& fields) {
  internal::RankInputs inputs;
  *inputs.mutable_config() = {fields.begin(), fields.end()};
  return inputs;
}

std::vector<internal::RankInputs> Ranks(const std::vector<std::vector<std::string>>& fields) {
  std::vector<internal::RankInputs> ranks;
  for (const std::vector<std::string>& of_rank : fields) ranks.push_back(With(of_rank));
  return ranks;
}

TEST(CompareInputs, IsOkWhenAllAreEqual) {
  EXPECT_TRUE(CompareInputs(FourRanks(),
                            Ranks({{"x=1", "y=2"}, {"x=1", "y=2"}, {"x=1", "y=2"}, {"x=1", "y=2"}}))
                  .ok());
}

TEST(CompareInputs, NamesTheFewWhoDifferWithTheirHost) {
  const absl::Status differs = CompareInputs(
      FourRanks(), Ranks({{"x=1", "y=2"}, {"x=1", "y=2"}, {"x=1", "y=2"}, {"x=1", "y=3"}}));
  EXPECT_EQ(differs.message(),
            "rank 3 (host b) has config y=3 where rank 0 (host a) has config y=2; start every rank "
            "with the same "
            "program and model");
  EXPECT_EQ(ExitCodeOf(differs), ExitCode::kGroupNotUp);
}

TEST(CompareInputs, NamesRank0WhenItIsTheOneThatDiffers) {
  const absl::Status differs =
      CompareInputs(FourRanks(), Ranks({{"x=9"}, {"x=1"}, {"x=1"}, {"x=1"}}));
  EXPECT_EQ(differs.message(),
            "rank 0 (host a) has config x=9 where rank 1 (host a) has config x=1; start every rank "
            "with the same "
            "program and model");
}

TEST(CompareInputs, TakesRank0sSideWhenItIsEven) {
  const absl::Status differs =
      CompareInputs(FourRanks(), Ranks({{"x=1"}, {"x=1"}, {"x=2"}, {"x=2"}}));
  EXPECT_EQ(differs.message(),
            "rank 2 (host b), rank 3 (host b) have config x=2 where rank 0 (host a) has config "
            "x=1; start every "
            "rank with the same program and model");
}

TEST(CompareInputs, AKeyThatARankDoesNotKnowDiffers) {
  EXPECT_FALSE(CompareInputs(FourRanks(), Ranks({{"x=1"}, {"x=1", "y=2"}, {"x=1"}, {"x=1"}})).ok());
}

TEST(RankInputs, NoticesOtherWeightsOfTheSameShapes) {
  const std::string sample = BH_SOURCE_DIR "/examples/models/sample";
  const std::string copy = testing::TempDir() + "/rank_inputs_copy";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(sample, copy);
  EngineOptions options;
  const auto inputs_of = [&](const std::string& dir) {
    options.model = dir;
    const auto source = ReadModelSource(options, Weights::kRequired);
    EXPECT_TRUE(source.ok()) << source.status();
    return *RankInputsOf(*source);
  };
  const internal::RankInputs inputs = inputs_of(sample);
  std::ofstream(copy + "/consolidated.safetensors") << "which nobody reads";
  EXPECT_TRUE(MessageDifferencer::Equals(inputs_of(copy), inputs));
  for (const auto& entry : std::filesystem::directory_iterator(copy)) {
    if (entry.path().filename() != "model-00002-of-00002.safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const auto last = static_cast<char>(file.peek());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  RankTopology topology = FourRanks();
  const internal::RankInputs other = inputs_of(copy);
  EXPECT_TRUE(absl::StartsWith(CompareInputs(topology, {inputs, inputs, inputs, other}).message(),
                               "rank 3 (host b) has weights model-00002-of-00002.safetensors="));
  std::filesystem::remove_all(copy);
}

TEST(RankInputs, EveryPartOfTheConfigIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const internal::RankInputs usual = *RankInputsOf(*source);
  std::ifstream file(options.model + "/config.json");
  const auto config = nlohmann::json::parse(file);
  const auto inputs_of = [&](const nlohmann::json& changed) {
    auto parsed = ParseModelConfig(changed.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    source->config = *std::move(parsed);
    return *RankInputsOf(*source);
  };
  const internal::RankInputs again = inputs_of(config);
  const std::vector<std::pair<std::string, nlohmann::json>> changes = {
      {"rms_norm_eps", config["rms_norm_eps"].get<double>() * 1.0000000000000002},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.00001}}},
      {"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 2.0}}},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"tie_word_embeddings", true},
      {"eos_token_id", 7},
      {"max_position_embeddings", config["max_position_embeddings"].get<int>() + 1},
      {"hidden_act", "swish"},
      {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}}}};
  for (const auto& [field, value] : changes) {
    nlohmann::json changed = config;
    changed[field] = value;
    const absl::Status differs =
        CompareInputs(FourRanks(), {again, again, again, inputs_of(changed)});
    EXPECT_EQ(ExitCodeOf(differs), ExitCode::kGroupNotUp) << field;
    EXPECT_TRUE(absl::StrContains(differs.message(), "rank 3 (host b)")) << differs;
  }
  nlohmann::json harmless = config;
  harmless["_name_or_path"] = "elsewhere";
  harmless["transformers_version"] = "1.2.3";
  EXPECT_TRUE(MessageDifferencer::Equals(inputs_of(harmless), again));
  EXPECT_THAT(usual.config(), testing::Contains("hidden_size=256"));
}

TEST(RankInputs, TheDraftModelIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  const internal::RankInputs alone = *RankInputsOf(*ReadModelSource(options, Weights::kRequired));
  options.speculative = {{.num_speculative_tokens = 3}, options.model};
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const internal::RankInputs usual = *RankInputsOf(*source);
  EXPECT_TRUE(CompareInputs(FourRanks(), {usual, usual, usual, usual}).ok());
  source->draft->config.model.eos_token_ids = {7};
  EXPECT_TRUE(absl::StrContains(
      CompareInputs(FourRanks(), {usual, usual, usual, *RankInputsOf(*source)}).message(),
      "rank 3 (host b) has draft eos=7 where"));
  EXPECT_TRUE(absl::StrContains(
      CompareInputs(FourRanks(), {alone, alone, alone, usual}).message(),
      "rank 3 (host b) has a draft model where rank 0 (host a) has no draft model"));
  EXPECT_FALSE(CompareInputs(FourRanks(), {usual, usual, usual, alone}).ok());
}

// What no field says: an lm_head of its own unties a config that ties it.
TEST(RankInputs, TheTableOfTensorsIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const internal::RankInputs usual = *RankInputsOf(*source);
  source->config.model.tie_word_embeddings = !source->config.model.tie_word_embeddings;
  EXPECT_TRUE(absl::StrContains(
      CompareInputs(FourRanks(), {usual, usual, usual, *RankInputsOf(*source)}).message(),
      "rank 3 (host b) has tensors="));
}

}  // namespace
}  // namespace bulkhead
