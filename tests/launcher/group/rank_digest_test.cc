#include "launcher/group/rank_digest.h"

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

RankTopology FourRanks() {
  RankTopology topology;
  topology.size = 4;
  topology.hosts = {"a", "a", "b", "b"};
  return topology;
}

TEST(CompareDigests, IsOkWhenAllAreEqual) {
  EXPECT_TRUE(CompareDigests(FourRanks(), {"x=1\ny=2", "x=1\ny=2", "x=1\ny=2", "x=1\ny=2"}).ok());
}

TEST(CompareDigests, NamesTheFewWhoDifferWithTheirHost) {
  const absl::Status differs =
      CompareDigests(FourRanks(), {"x=1\ny=2", "x=1\ny=2", "x=1\ny=2", "x=1\ny=3"});
  EXPECT_EQ(differs.message(),
            "rank 3 (host b) has y=3 where rank 0 (host a) has y=2; start every rank with the same "
            "program and model");
  EXPECT_EQ(ExitCodeOf(differs), ExitCode::kGroupNotUp);
}

TEST(CompareDigests, NamesRank0WhenItIsTheOneThatDiffers) {
  const absl::Status differs = CompareDigests(FourRanks(), {"x=9", "x=1", "x=1", "x=1"});
  EXPECT_EQ(differs.message(),
            "rank 0 (host a) has x=9 where rank 1 (host a) has x=1; start every rank with the same "
            "program and model");
}

TEST(CompareDigests, TakesRank0sSideWhenItIsEven) {
  const absl::Status differs = CompareDigests(FourRanks(), {"x=1", "x=1", "x=2", "x=2"});
  EXPECT_EQ(differs.message(),
            "rank 2 (host b), rank 3 (host b) have x=2 where rank 0 (host a) has x=1; start every "
            "rank with the same program and model");
}

TEST(CompareDigests, AKeyThatARankDoesNotKnowDiffers) {
  EXPECT_FALSE(CompareDigests(FourRanks(), {"x=1", "x=1\ny=2", "x=1", "x=1"}).ok());
}

TEST(RankDigest, NoticesOtherWeightsOfTheSameShapes) {
  const std::string sample = BH_SOURCE_DIR "/examples/models/sample";
  const std::string copy = testing::TempDir() + "/rank_digest_copy";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(sample, copy);
  EngineOptions options;
  const auto digest_of = [&](const std::string& dir) {
    options.model = dir;
    const auto source = ReadModelSource(options, Weights::kRequired);
    EXPECT_TRUE(source.ok()) << source.status();
    return *RankDigest(*source);
  };
  const std::string digest = digest_of(sample);
  std::ofstream(copy + "/consolidated.safetensors") << "which nobody reads";
  EXPECT_EQ(digest, digest_of(copy));
  for (const auto& entry : std::filesystem::directory_iterator(copy)) {
    if (entry.path().filename() != "model-00002-of-00002.safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const auto last = static_cast<char>(file.peek());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  RankTopology topology = FourRanks();
  const std::string other = digest_of(copy);
  EXPECT_TRUE(absl::StartsWith(CompareDigests(topology, {digest, digest, digest, other}).message(),
                               "rank 3 (host b) has weights model-00002-of-00002.safetensors="));
  std::filesystem::remove_all(copy);
}

TEST(RankDigest, EveryPartOfTheConfigIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string usual = *RankDigest(*source);
  std::ifstream file(options.model + "/config.json");
  const auto config = nlohmann::json::parse(file);
  const auto digest_of = [&](const nlohmann::json& changed) {
    auto parsed = ParseModelConfig(changed.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    source->config = *std::move(parsed);
    return *RankDigest(*source);
  };
  const std::string again = digest_of(config);
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
        CompareDigests(FourRanks(), {again, again, again, digest_of(changed)});
    EXPECT_EQ(ExitCodeOf(differs), ExitCode::kGroupNotUp) << field;
    EXPECT_TRUE(absl::StrContains(differs.message(), "rank 3 (host b)")) << differs;
  }
  nlohmann::json harmless = config;
  harmless["_name_or_path"] = "elsewhere";
  harmless["transformers_version"] = "1.2.3";
  EXPECT_EQ(digest_of(harmless), again);
  EXPECT_TRUE(absl::StrContains(usual, "\nconfig hidden_size=256\n"));
}

// What no field says: an lm_head of its own unties a config that ties it.
TEST(RankDigest, TheTableOfTensorsIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string usual = *RankDigest(*source);
  source->config.model.tie_word_embeddings = !source->config.model.tie_word_embeddings;
  EXPECT_NE(*RankDigest(*source), usual);
}

}  // namespace
}  // namespace bulkhead
