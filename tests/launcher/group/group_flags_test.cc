#include "launcher/group/group_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using Args = std::vector<std::string>;
using testing::HasSubstr;

// Of `run`, as a rank of its own parses it.
EngineOptions RunWith(const Args& flags) {
  Args args = {"run", "--prompts=p"};
  args.insert(args.end(), flags.begin(), flags.end());
  const auto command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? std::get<RunOptions>(*command).engine : EngineOptions();
}

// What a rank with flags `own` takes where rank 0 has `rank0`.
absl::StatusOr<EngineOptions> Merged(const Args& own, const Args& rank0) {
  return WithFlagsOfRank0(RunWith(own).command_line, RunWith(rank0).command_line);
}

TEST(GroupFlagsTest, WhatARankIsNotGivenItTakesFromRank0) {
  const auto merged = Merged({"--model=here"}, {"--model=there", "--max-num-seqs=3", "--tp=2",
                                                "--no-enable-prefix-caching", "--dtype=bf16"});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->model, "here");
  EXPECT_EQ(merged->limits.max_num_seqs, 3);
  EXPECT_EQ(merged->tensor_parallel_size, 2);
  EXPECT_FALSE(merged->enable_prefix_caching);
  EXPECT_EQ(merged->dtype, DType::kBF16);
}

TEST(GroupFlagsTest, AnotherValueThanRank0sIsRefusedWithFlagAndBothValues) {
  EXPECT_EQ(
      Merged({"--model=m", "--block-size=32"}, {"--model=m", "--block-size=16"}).status().message(),
      "--block-size is 32 where rank 0 has 16; start every rank with the same flags, or give "
      "them to rank 0 alone");
  EXPECT_THAT(Merged({"m", "--max-model-len=99"}, {"m"}).status().message(),
              HasSubstr("--max-model-len is 99 where rank 0 has its default"));
  EXPECT_THAT(Merged({"m", "--kv-cache-bytes=1GiB"}, {"m", "--cache-max-entry-count=0.5"})
                  .status()
                  .message(),
              HasSubstr("--kv-cache-bytes is 1GiB where rank 0 has its default"));
  EXPECT_THAT(Merged({"m", "--enable-prefix-caching"}, {"m", "--no-enable-prefix-caching"})
                  .status()
                  .message(),
              HasSubstr("--enable-prefix-caching is true where rank 0 has false"));
}

TEST(GroupFlagsTest, EqualValuesMayBeWrittenInOtherWays) {
  EXPECT_TRUE(Merged({"m", "--max-model-len=32k", "--quant-policy=8", "--block-size=16"},
                     {"m", "--session-len", "32000", "--kv-cache-dtype=int8"})
                  .ok());
}

TEST(GroupFlagsTest, AnotherCommandIsRefused) {
  const auto serve = ParseCommandLine({"serve", "m"});
  ASSERT_TRUE(serve.ok());
  EXPECT_EQ(WithFlagsOfRank0(RunWith({"m"}).command_line, EngineOf(*serve)->command_line)
                .status()
                .message(),
            "the command is run where rank 0 has serve");
}

// Flags in which hosts may differ, each with a value.
const std::map<std::string, std::string> kOfAHost = {
    {"--verbose", "true"},   {"--log-format", "text"},    {"--threads", "3"},
    {"--numa", "off"},       {"--device-memory", "9GiB"}, {"--reserve", "1GiB"},
    {"--model", "elsewhere"}};
// All other flags of `run` except the command's own, each with a non-default value.
const std::map<std::string, std::string> kOfTheGroup = {
    {"--dtype", "float16"},
    {"--weight-dtype", "int8"},
    {"--weight-group-size", "64"},
    {"--lora-modules", "a=x"},
    {"--activation-dtype", "f32"},
    {"--attention-dtype", "f32"},
    {"--strict-config", "true"},
    {"--device", "cpu"},
    {"--comm", "staged"},
    {"--all-reduce-dtype", "bf16"},
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
    {"--enable-prefix-caching", "false"},
    {"--admission", "optimistic"},
    {"--scheduling-policy", "priority"},
    {"--speculative-config", R"({"method": "ngram", "num_speculative_tokens": 3})"},
    {"--startup-timeout", "7"},
    {"--step-timeout", "7"},
};

// The flags in the help of both `run` and `score`.
std::set<std::string> EngineFlagsInHelp() {
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
  std::set<std::string> both;
  const std::set<std::string> score = names_in("score");
  for (const std::string& name : names_in("run")) {
    if (score.count(name) > 0) both.insert(name);
  }
  for (const char* other : {"--out", "--help", "--config", "--print-config"}) both.erase(other);
  return both;
}

TEST(GroupFlagsTest, EveryFlagIsTheGroupsOrAHostsOwn) {
  const std::set<std::string> flags = EngineFlagsInHelp();
  EXPECT_GT(flags.size(), 20U);
  for (const std::string& flag : flags) {
    if (const auto own = kOfAHost.find(flag); own != kOfAHost.end()) {
      const Args model = flag == "--model" ? Args() : Args{"--model=m"};
      Args with = model;
      with.push_back(flag + "=" + own->second);
      EXPECT_TRUE(Merged(with, {"--model=m"}).ok()) << flag;
      continue;
    }
    const auto shared = kOfTheGroup.find(flag);
    ASSERT_NE(shared, kOfTheGroup.end())
        << flag << " is new: may hosts differ in it, or do they take rank 0's?";
    const std::string given = flag + "=" + shared->second;
    EXPECT_THAT(Merged({"m", given}, {"m"}).status().message(), HasSubstr(flag + " is "));
    const auto taken = Merged({"m"}, {"m", given});
    ASSERT_TRUE(taken.ok()) << taken.status();
    EngineOptions expected = RunWith({"m", given});
    expected.command_line = taken->command_line;
    EXPECT_TRUE(*taken == expected) << flag;
    EXPECT_FALSE(*taken == RunWith({"m"})) << flag;
  }
}

TEST(GroupFlagsTest, HostsKeepTheirOwnMemoryAndCores) {
  RunRanks(2, [](Group& group) {
    const bool first = group.exchange().topology().coordinator();
    const auto merged = FlagsOfGroup(
        first ? RunWith({"m", "--threads=3", "--device-memory=1GiB", "--max-num-seqs=5"})
              : RunWith({"m", "--reserve=1MiB"}),
        group.exchange());
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(merged->limits.max_num_seqs, 5);
    EXPECT_EQ(merged->threads.has_value(), first);
    EXPECT_EQ(merged->device_memory.has_value(), first);
    EXPECT_EQ(merged->reserve.has_value(), !first);
  });
}

TEST(GroupFlagsTest, ARankThatDiffersIsNamedToAll) {
  std::vector<absl::Status> all(3);
  RunRanks(3, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    all[rank] =
        FlagsOfGroup(RunWith({"m", rank == 2 ? "--tp=2" : "--tp=3"}), group.exchange()).status();
  });
  EXPECT_EQ(all[0], all[2]);
  EXPECT_EQ(ExitCodeOf(all[0]), ExitCode::kGroupNotUp);
  EXPECT_TRUE(absl::StartsWith(all[0].message(), "rank 2 (host ")) << all[0];
  EXPECT_THAT(all[0].message(), HasSubstr("): --tensor-parallel-size is 2 where rank 0 has 3"));
}

TEST(GroupFlagsTest, ValuesNeedNotBeUtf8) {
  RunRanks(2, [&](Group& group) {
    const auto agreed = FlagsOfGroup(RunWith({"caf\xe9"}), group.exchange());
    ASSERT_TRUE(agreed.ok()) << agreed.status();
    EXPECT_EQ(agreed->model, "caf\xe9");
  });
}

// As of `mpirun bulkhead run --config FILE` where only rank 0's host has the file.
TEST(GroupFlagsTest, AFileThatOnlyRank0HasIsEverybodys) {
  const std::string path = testing::TempDir() + "/rank0.toml";
  std::ofstream(path) << "model = \"from-file\"\nmax-num-seqs = 7\nprompts = \"p\"\n";
  const EngineOptions rank0 = RunWith({"--config", path});
  EXPECT_EQ(rank0.limits.max_num_seqs, 7);
  const std::string absent = path + ".absent";
  EXPECT_FALSE(ParseCommandLine({"run", "--prompts=p", "--config", absent}).ok());
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  const EngineOptions rank1 = RunWith({"--config", absent});
  const auto merged = WithFlagsOfRank0(rank1.command_line, rank0.command_line);
  unsetenv("OMPI_COMM_WORLD_RANK");
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->model, "from-file");
  EXPECT_EQ(merged->limits.max_num_seqs, 7);
}

}  // namespace
}  // namespace bulkhead
