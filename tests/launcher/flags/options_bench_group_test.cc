#include <cmath>

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/flags/options.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  if (command.ok()) return "accepted";
  EXPECT_EQ(ExitCodeOf(command.status()), ExitCode::kUsage);
  return std::string(command.status().message());
}

template <typename Options>
Options ParsedAs(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  const Options* options = command.ok() ? std::get_if<Options>(&*command) : nullptr;
  EXPECT_NE(options, nullptr);
  return options != nullptr ? *options : Options();
}

TEST(OptionsBenchGroupTest, ThePythonToolReadsItsOwnFlags) {
  for (const char* name : {"compare", "definitions", "report", "scale", "sweep"}) {
    const auto tool = ParsedAs<ToolCommand>({name, "--help", "x"});
    EXPECT_THAT(tool.args, ElementsAre(name, "--help", "x"));
    EXPECT_EQ(tool.starts_groups, std::string(name) == "scale");
  }
}

TEST(OptionsBenchGroupTest, VerifyStartsGroupsUnlessItIsOneOfTheirRanks) {
  const auto groups = ParsedAs<ToolCommand>({"verify", "model", "--tp", "2"});
  EXPECT_THAT(groups.args, ElementsAre("verify", "model", "--tp", "2"));
  EXPECT_TRUE(groups.starts_groups);
  const auto rank = ParsedAs<VerifyOptions>(
      {"verify", "model", "--save=f", "--input-len", "5,9", "--output-len", "3", "--tp", "2"});
  EXPECT_EQ(rank.save, "f");
  EXPECT_EQ(rank.engine.tensor_parallel_size, 2);
  EXPECT_EQ(rank.engine.limits.max_model_len, 12);
  EXPECT_EQ(rank.engine.limits.max_num_seqs, 16);
  EXPECT_THAT(Refusal({"verify", "model", "--save", "f", "--against", "g"}), HasSubstr("one of"));
  EXPECT_THAT(Refusal({"verify", "model", "--save", "f", "--num-prompts", "0"}),
              HasSubstr("--num-prompts"));
  EXPECT_THAT(Refusal({"verify", "--save", "f"}), HasSubstr("--model is missing"));
}

TEST(OptionsBenchGroupTest, TheLengthIsSaidByTheLengthsOfPromptAndAnswer) {
  const auto lengths = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"throughput", "model", "--input-len", "5,9", "--output-len", "3"});
    return ParsedAs<ThroughputOptions>(more).engine.length_flags;
  };
  EXPECT_EQ(lengths({}), "--input-len 9 + --output-len 3");
  EXPECT_EQ(lengths({"--max-model-len", "20"}), "--max-model-len");
  EXPECT_EQ(
      ParsedAs<VerifyOptions>({"verify", "model", "--save=f", "--input-len=5"}).engine.length_flags,
      "--input-len 5 + --output-len 32");
}

TEST(OptionsBenchGroupTest, CommTakesACollectiveAndSizes) {
  const auto options = ParsedAs<CommOptions>(
      {"comm", "--collective", "gather", "--min-bytes", "4KiB", "--max-bytes", "1MiB", "--pairs"});
  EXPECT_EQ(options.collective, Collective::kGather);
  EXPECT_EQ(options.min_bytes, 4096);
  EXPECT_TRUE(options.pairs);
  EXPECT_THAT(Refusal({"comm", "--collective", "gossip"}), HasSubstr("all_gather"));
  EXPECT_THAT(Refusal({"comm", "--min-bytes", "2MiB", "--max-bytes", "1MiB"}),
              HasSubstr("more than --max-bytes"));
}

TEST(OptionsBenchGroupTest, SimulateTakesSizesAndCosts) {
  const auto options = ParsedAs<SimulateOptions>(
      {"simulate", "--ranks", "512", "--max-num-seqs", "10,20", "--step-us", "3.5"});
  EXPECT_THAT(options.ranks, ElementsAre(512));
  EXPECT_THAT(options.max_num_seqs, ElementsAre(10, 20));
  EXPECT_EQ(options.cost.step_us, 3.5);
  EXPECT_FALSE(options.cost.message_us.has_value());
  EXPECT_THAT(Refusal({"simulate", "--step-us", "-1"}), HasSubstr("--step-us"));
  EXPECT_THAT(Refusal({"simulate", "--request-rate", "1e-320"}), HasSubstr("at least 0.001"));
  const auto zero = ParsedAs<SimulateOptions>({"simulate", "--step-us", "-0"});
  EXPECT_FALSE(std::signbit(*zero.cost.step_us));
}

TEST(OptionsBenchGroupTest, AnUnknownBenchSuggestsTheNearest) {
  EXPECT_THAT(Refusal({"scales"}), HasSubstr("did you mean scale"));
  for (const char* name : {"compare", "definitions", "report", "scale", "sweep", "verify"}) {
    EXPECT_THAT(ParsedAs<PrintText>({"--help"}).text, HasSubstr(name));
  }
  for (const char* name : {"comm", "kernels", "serve", "simulate", "throughput"}) {
    EXPECT_THAT(ParsedAs<PrintText>({"--help"}).text, HasSubstr(name));
    EXPECT_THAT(ParsedAs<PrintText>({name, "--help"}).text, HasSubstr(name));
  }
}

}  // namespace
}  // namespace bulkhead
