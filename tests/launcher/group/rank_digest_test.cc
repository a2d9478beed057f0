#include "launcher/group/rank_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "memory/exit_code.h"

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

}  // namespace
}  // namespace bulkhead
