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
            "program, model and flags");
  EXPECT_EQ(ExitCodeOf(differs), ExitCode::kGroupNotUp);
}

TEST(CompareDigests, NamesRank0WhenItIsTheOneThatDiffers) {
  const absl::Status differs = CompareDigests(FourRanks(), {"x=9", "x=1", "x=1", "x=1"});
  EXPECT_EQ(differs.message(),
            "rank 0 (host a) has x=9 where rank 1 (host a) has x=1; start every rank with the same "
            "program, model and flags");
}

TEST(CompareDigests, TakesRank0sSideWhenItIsEven) {
  const absl::Status differs = CompareDigests(FourRanks(), {"x=1", "x=1", "x=2", "x=2"});
  EXPECT_EQ(differs.message(),
            "rank 2 (host b), rank 3 (host b) have x=2 where rank 0 (host a) has x=1; start every "
            "rank with the same program, model and flags");
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
    return *RankDigest(options, *source);
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

// Flags in which hosts may differ, each with a value.
const std::map<std::string, std::string> kOfAHost = {
    {"--verbose", ""},           {"--log-format", "text"}, {"--threads", "3"},
    {"--device-memory", "9GiB"}, {"--reserve", "1GiB"},    {"--model", "elsewhere"}};
// All other flags of `run` except the command's own, each with a non-default value; mutually
// exclusive flags are tested separately.
const std::map<std::string, std::string> kOfTheGroup = {
    {"--dtype", "float16"},
    {"--weight-dtype", "int8"},
    {"--weight-group-size", "64"},
    {"--activation-dtype", "f32"},
    {"--strict-config", ""},
    {"--device", "cpu"},
    {"--comm", "staged"},
    {"--tensor-parallel-size", "2"},
    {"--tp-shares", "auto"},
    {"--max-num-seqs", "3"},
    {"--max-model-len", "99"},
    {"--max-num-batched-tokens", "77"},
    {"--default-max-tokens", "5"},
    {"--gpu-memory-utilization", "0.5"},
    {"--cache-max-entry-count", "0.5"},
    {"--kv-cache-bytes", "1GiB"},
    {"--kv-cache-dtype", "int8"},
    {"--quant-policy", "4"},
    {"--block-size", "32"},
    {"--no-enable-prefix-caching", ""},
    {"--admission", "optimistic"},
    {"--scheduling-policy", "priority"},
    {"--startup-timeout", "7"},
    {"--step-timeout", "7"},
};

// The flags in the help of `command` in groups shared with other commands that load a model.
std::vector<std::string> EngineFlagsInHelp() {
  const auto names_in = [](const char* command) {
    std::set<std::string> names;
    const auto help = ParseCommandLine({command, "--help"});
    EXPECT_TRUE(help.ok());
    for (absl::string_view line : absl::StrSplit(std::get<PrintText>(*help).text, '\n')) {
      if (absl::ConsumePrefix(&line, "  ") && absl::StartsWith(line, "--")) {
        names.insert(std::string(line.substr(0, line.find_first_of(", \n"))));
      }
    }
    return names;
  };
  const std::set<std::string> run = names_in("run");
  const std::set<std::string> score = names_in("score");
  std::vector<std::string> both;
  std::set_intersection(run.begin(), run.end(), score.begin(), score.end(),
                        std::back_inserter(both));
  return both;
}

EngineOptions OptionsWith(const std::string& flag, const std::string& value) {
  const std::string model = flag == "--model" ? "" : "--model=m";
  std::vector<std::string> args = {"run", "--prompts=p"};
  if (!model.empty()) args.push_back(model);
  args.push_back(value.empty() ? flag : absl::StrCat(flag, "=", value));
  const auto command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? std::get<RunOptions>(*command).engine : EngineOptions();
}

TEST(RankDigest, EveryFlagIsComparedOrAHostsOwn) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  const auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string usual = *RankDigest(options, *source);
  const std::vector<std::string> flags = EngineFlagsInHelp();
  EXPECT_GT(flags.size(), 20u);
  for (const std::string& flag : flags) {
    if (flag == "--out" || flag == "--help" || flag == "--enable-prefix-caching") continue;
    if (flag == "--config" || flag == "--print-config") continue;  // what a file says is compared
    if (const auto own = kOfAHost.find(flag); own != kOfAHost.end()) {
      EXPECT_EQ(*RankDigest(OptionsWith(flag, own->second), *source), usual) << flag;
      continue;
    }
    const auto shared = kOfTheGroup.find(flag);
    ASSERT_NE(shared, kOfTheGroup.end())
        << flag << " is new: may hosts differ in it, or must ranks agree on it?";
    EXPECT_NE(*RankDigest(OptionsWith(flag, shared->second), *source), usual) << flag;
  }
}

TEST(RankDigest, EveryPartOfTheConfigIsCompared) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string usual = *RankDigest(options, *source);
  std::ifstream file(options.model + "/config.json");
  const auto config = nlohmann::json::parse(file);
  const auto digest_of = [&](const nlohmann::json& changed) {
    auto parsed = ParseModelConfig(changed.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    source->config = *std::move(parsed);
    return *RankDigest(options, *source);
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
  const std::string usual = *RankDigest(options, *source);
  source->config.model.tie_word_embeddings = !source->config.model.tie_word_embeddings;
  EXPECT_NE(*RankDigest(options, *source), usual);
}

}  // namespace
}  // namespace bulkhead
