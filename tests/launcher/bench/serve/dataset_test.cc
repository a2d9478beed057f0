#include "launcher/bench/serve/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

Ids IdsOf(const v1::GenerateRequest& request) {
  return Ids(request.token_ids().ids().begin(), request.token_ids().ids().end());
}

DatasetOptions Random(int count, int input_len, int output_len) {
  DatasetOptions options;
  options.num_prompts = count;
  options.input_len = input_len;
  options.output_len = output_len;
  return options;
}

BenchPrompts Made(const DatasetOptions& options, const DatasetFacts& facts = {}, int run = 0) {
  absl::StatusOr<BenchPrompts> prompts = MakePrompts(options, facts, run);
  EXPECT_TRUE(prompts.ok()) << prompts.status();
  return prompts.ok() ? *std::move(prompts) : BenchPrompts();
}

class DatasetFile : public ::testing::Test {
 protected:
  DatasetOptions Written(DatasetName name, const std::string& text) {
    std::ofstream(path_) << text;
    DatasetOptions options;
    options.name = name;
    options.path = path_;
    return options;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = ::testing::TempDir() + "/bench_dataset_" + std::to_string(getpid());
};

TEST(Dataset, RandomPromptsHaveTheLengthsAskedFor) {
  DatasetFacts facts;
  facts.vocab_size = 50;
  const BenchPrompts prompts = Made(Random(20, 12, 5), facts);
  ASSERT_EQ(prompts.requests.size(), 20);
  EXPECT_TRUE(prompts.due_s.empty());
  for (const v1::GenerateRequest& request : prompts.requests) {
    EXPECT_EQ(request.token_ids().ids_size(), 12);
    for (const uint32_t id : IdsOf(request)) EXPECT_LT(id, 50);
    EXPECT_EQ(request.stopping().max_tokens(), 5);
    EXPECT_TRUE(request.stopping().ignore_eos());
    EXPECT_EQ(request.sampling().temperature(), 0);
  }
}

TEST(Dataset, MoreThanTheClientsMemoryIsRefusedBeforeItIsMade) {
  DatasetFacts facts;
  facts.client_bytes = int64_t{1} << 30;
  const absl::Status status = MakePrompts(Random(10'000'000, 16'000, 100), facts, 0).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(status.message(), HasSubstr("10000000 requests of these lengths take 1.2 TiB"));
  EXPECT_THAT(status.message(), HasSubstr("lower --num-prompts"));
  EXPECT_EQ(Made(Random(1000, 100, 10), facts).requests.size(), 1000);
}

TEST_F(DatasetFile, FilesAreBoundByTheClientsMemoryToo) {
  DatasetFacts facts;
  facts.client_bytes = 5000;
  DatasetOptions options = Written(DatasetName::kCustom, "{\"prompt\": \"a\"}\n");
  options.output_len = 1;
  EXPECT_TRUE(MakePrompts(options, facts, 0).ok());
  options.num_prompts = 1000;
  EXPECT_THAT(MakePrompts(options, facts, 0).status().message(), HasSubstr("of the client's"));
  std::string trace;
  for (int i = 0; i < 100; ++i) {
    trace += R"({"timestamp": 0, "input_length": 9, "output_length": 9})"
             "\n";
  }
  EXPECT_THAT(MakePrompts(Written(DatasetName::kTrace, trace), facts, 0).status().message(),
              HasSubstr("of the client's"));
}

TEST_F(DatasetFile, ATraceOfMoreThanAWeekIsRefusedByLine) {
  for (const char* time : {"604800001", "1e18", "1e308"}) {
    const DatasetOptions options = Written(
        DatasetName::kTrace, absl::StrCat(R"({"timestamp": 0, "input_length": 1, "output_length": 1}
{"timestamp": )",
                                          time, R"(, "input_length": 1, "output_length": 1})"));
    const absl::Status status = MakePrompts(options, {}, 0).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << time;
    EXPECT_THAT(status.message(), HasSubstr(":2: is due")) << time;
    EXPECT_THAT(status.message(), HasSubstr("more than a week")) << time;
  }
  DatasetOptions fast = Written(DatasetName::kTrace,
                                R"({"timestamp": 0, "input_length": 1, "output_length": 1}
{"timestamp": 604800001, "input_length": 1, "output_length": 1})");
  fast.trace_speed = 2;
  EXPECT_EQ(Made(fast).requests.size(), 2);
}

TEST(Dataset, ADirectoryCannotBeReadAndTheFlagIsNamed) {
  for (const DatasetName name : {DatasetName::kCustom, DatasetName::kTrace}) {
    DatasetOptions options;
    options.name = name;
    options.path = ::testing::TempDir();
    const absl::Status status = MakePrompts(options, {}, 0).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    EXPECT_THAT(status.message(), HasSubstr("is a directory"));
    EXPECT_THAT(status.message(), HasSubstr("--dataset-path"));
  }
}

TEST(Dataset, TheRangeRatioSpreadsLengths) {
  DatasetOptions options = Random(400, 20, 10);
  options.range_ratio = 0.5;
  std::set<int> inputs, outputs;
  for (const v1::GenerateRequest& request : Made(options).requests) {
    inputs.insert(request.token_ids().ids_size());
    outputs.insert(static_cast<int>(request.stopping().max_tokens()));
  }
  EXPECT_EQ(*inputs.begin(), 10);
  EXPECT_EQ(*inputs.rbegin(), 30);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_EQ(*outputs.rbegin(), 15);
}

TEST(Dataset, SeedAndRunDecideThePrompts) {
  const DatasetOptions options = Random(5, 30, 4);
  EXPECT_EQ(IdsOf(Made(options).requests[3]), IdsOf(Made(options).requests[3]));
  EXPECT_NE(IdsOf(Made(options).requests[3]), IdsOf(Made(options, {}, 1).requests[3]));
  DatasetOptions other = options;
  other.seed = 1;
  EXPECT_NE(IdsOf(Made(options).requests[3]), IdsOf(Made(other).requests[3]));
}

TEST(Dataset, PromptsOfAGroupBeginAlike) {
  DatasetOptions options = Random(6, 10, 4);
  options.name = DatasetName::kPrefixRepetition;
  options.prefix_len = 40;
  options.num_prefixes = 2;
  const BenchPrompts prompts = Made(options);
  const auto prefix = [&](int i) {
    Ids ids = IdsOf(prompts.requests[i]);
    EXPECT_EQ(ids.size(), 50);
    ids.resize(40);
    return ids;
  };
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(5));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(IdsOf(prompts.requests[0]), IdsOf(prompts.requests[2]));
}

TEST(Dataset, TextPromptsArePiecesOfTheText) {
  DatasetOptions options = Random(30, 8, 4);
  options.name = DatasetName::kText;
  DatasetFacts facts;
  facts.text_ids = {5, 6, 7, 8, 9};
  for (const v1::GenerateRequest& request : Made(options, facts).requests) {
    const Ids ids = IdsOf(request);
    ASSERT_EQ(ids.size(), 8);
    for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 1] == 9 ? 5 : ids[i - 1] + 1);
  }
  EXPECT_THAT(MakePrompts(options, {}, 0).status().message(), HasSubstr("use random"));
  EXPECT_GT(BuiltInText().size(), 4000);
}

TEST(Dataset, WhatTheServerCannotHoldIsRefusedWithTheNumbers) {
  DatasetFacts facts;
  facts.max_model_len = 100;
  EXPECT_TRUE(MakePrompts(Random(1, 90, 10), facts, 0).ok());
  const absl::Status status = MakePrompts(Random(1, 91, 10), facts, 0).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(status.message(), HasSubstr("need max_model_len 101; the server's is 100"));
}

TEST_F(DatasetFile, CustomLinesAreThoseOfGenerate) {
  DatasetOptions options =
      Written(DatasetName::kCustom,
              "{\"prompt\": \"one\", \"max_tokens\": 3}\n\n{\"prompt_token_ids\": [1, 2]}\n");
  options.output_len = 9;
  const BenchPrompts prompts = Made(options);
  ASSERT_EQ(prompts.requests.size(), 2);
  EXPECT_EQ(prompts.requests[0].text(), "one");
  EXPECT_EQ(prompts.requests[0].stopping().max_tokens(), 3);
  EXPECT_FALSE(prompts.requests[0].stopping().has_ignore_eos());
  EXPECT_EQ(prompts.requests[1].stopping().max_tokens(), 9);
  options.num_prompts = 5;  // goes round
  EXPECT_EQ(Made(options).requests[4].text(), "one");
}

TEST_F(DatasetFile, ABadLineIsNamed) {
  const DatasetOptions options =
      Written(DatasetName::kCustom, "{\"prompt\": \"one\"}\n{\"promt\": \"two\"}\n");
  EXPECT_THAT(MakePrompts(options, {}, 0).status().message(), HasSubstr("line 2"));
  EXPECT_THAT(MakePrompts(Written(DatasetName::kCustom, ""), {}, 0).status().message(),
              HasSubstr("holds no prompt"));
}

TEST_F(DatasetFile, ATraceHasItsOwnTimesAndLengths) {
  DatasetOptions options = Written(
      DatasetName::kTrace,
      "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [4, 5]}\n"
      "{\"timestamp\": 1500, \"input_length\": 700, \"output_length\": 3, \"hash_ids\": [4, 6]}\n"
      "{\"timestamp\": 4000, \"input_length\": 5, \"output_length\": 4}\n");
  options.trace_speed = 2;
  const BenchPrompts prompts = Made(options);
  EXPECT_THAT(prompts.due_s, ElementsAre(0, 0.25, 1.5));
  const Ids first = IdsOf(prompts.requests[0]);
  const Ids second = IdsOf(prompts.requests[1]);
  ASSERT_EQ(first.size(), 600);
  ASSERT_EQ(second.size(), 700);
  // A shared id is a shared block of 512 tokens.
  EXPECT_EQ(Ids(first.begin(), first.begin() + 512), Ids(second.begin(), second.begin() + 512));
  EXPECT_NE(first[512], second[512]);
  EXPECT_EQ(prompts.requests[2].stopping().max_tokens(), 4);
}

TEST_F(DatasetFile, ABadTraceIsRefusedWithItsLine) {
  const auto refusal = [&](const std::string& text, int max_model_len = 0) {
    DatasetFacts facts;
    facts.max_model_len = max_model_len;
    const absl::Status status = MakePrompts(Written(DatasetName::kTrace, text), facts, 0).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    return std::string(status.message());
  };
  const std::string good = "{\"timestamp\": 5, \"input_length\": 6, \"output_length\": 2}\n";
  EXPECT_THAT(refusal(good + "nonsense\n"), HasSubstr(":2: is not a JSON object"));
  EXPECT_THAT(refusal("{\"timestamp\": 5, \"input_length\": 0, \"output_length\": 2}\n"),
              HasSubstr("\"input_length\" must be a number of tokens from 1"));
  EXPECT_THAT(refusal(good + "{\"timestamp\": 4, \"input_length\": 6, \"output_length\": 2}\n"),
              HasSubstr("goes back in time"));
  EXPECT_THAT(refusal(good, 7), HasSubstr("needs max_model_len 8; the server's is 7"));
  EXPECT_THAT(refusal("\n"), HasSubstr("holds no request"));
}

}  // namespace
}  // namespace bulkhead
