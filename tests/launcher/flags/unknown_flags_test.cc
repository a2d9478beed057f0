// What a command says of a flag that it does not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(UnknownFlagsTest, AnUnknownNameSuggestsTheNearest) {
  EXPECT_THAT(Refusal(Serve({"--max-num-seq", "4"})),
              AllOf(HasSubstr("--max-num-seq "), HasSubstr("did you mean --max-num-seqs?")));
  EXPECT_THAT(Refusal(Serve({"--max_num_sqes=4"})), HasSubstr("did you mean --max-num-seqs?"));
  EXPECT_THAT(Refusal({"sevre"}), HasSubstr("did you mean serve?"));
  EXPECT_THAT(Refusal({"generate", "--temprature", "1"}), HasSubstr("--temperature"));
  EXPECT_THAT(Refusal({"--verison"}), HasSubstr("--version"));
  EXPECT_THAT(Refusal({"frobnicate"}), HasSubstr("--help"));
}

TEST(UnknownFlagsTest, AHintOfAForeignFlagNamesAFlagOfThisCommand) {
  EXPECT_THAT(Refusal({"generate", "-n", "5", "a"}), HasSubstr("-n of 'bulkhead generate': write "
                                                               "--max-tokens"));
  for (const auto& [command, theirs] :
       {std::pair("tokenize", "-t"), {"drain", "-np"}, {"drain", "-a"}}) {
    EXPECT_THAT(Refusal({command, theirs, "1"}),
                HasSubstr(absl::StrCat("unknown flag ", theirs, " of 'bulkhead ", command,
                                       "'; see 'bulkhead ", command, " --help'")));
  }
}

TEST(UnknownFlagsTest, AShortNameSuggestsNoOtherFlag) {
  for (const char* theirs : {"--n", "-xp", "--xp", "--helm"}) {
    EXPECT_THAT(Refusal(Serve({theirs, "1"})), HasSubstr("see 'bulkhead serve --help'")) << theirs;
  }
  EXPECT_THAT(Refusal(Serve({"--prot", "1"})), HasSubstr("did you mean --port?"));
  EXPECT_THAT(Refusal(Serve({"--hots", "1"})), HasSubstr("did you mean --host?"));
}

TEST(UnknownFlagsTest, ANegationSuggestsWhatSwitchesOff) {
  for (const char* theirs : {"--no-prefix-caching", "--disable-prefix-caching"}) {
    EXPECT_THAT(Refusal(Serve({theirs})), HasSubstr("did you mean --no-enable-prefix-caching?"));
  }
  EXPECT_THAT(Refusal(Serve({"--prefix-caching"})),
              HasSubstr("did you mean --enable-prefix-caching?"));
  EXPECT_THAT(Refusal(Serve({"--no-log-requests"})),
              HasSubstr("did you mean --log-requests=false?"));
  EXPECT_THAT(Refusal({"drain", "--wait"}), HasSubstr("did you mean --no-wait=false?"));
  EXPECT_THAT(Refusal(Serve({"--no-prefix-cachin"})), Not(HasSubstr("did you mean --enable")));
}

TEST(UnknownFlagsTest, FlagsOfOtherServersSayWhichIsOurs) {
  for (const auto& [theirs, ours] : {std::pair("-dp", "one group for each replica"),
                                     {"-pp", "--tensor-parallel-size"},
                                     {"-ep", "each expert is split over all ranks"},
                                     {"--lora", "write --lora-modules NAME=DIR"},
                                     {"--lora-paths", "write --lora-modules NAME=DIR"},
                                     {"--enable-lora", "--lora-modules are loaded at start"},
                                     {"--max-lora-rank", "with any LoRA rank; leave it out"},
                                     {"--kv-dtype", "--kv-cache-dtype"},
                                     {"--kv-transfer-config", "not split over servers"},
                                     {"--disable-log-stats", "logs its load"},
                                     {"--override-generation-config", "generation_config.json"},
                                     {"--hf-overrides", "change config.json"},
                                     {"--tokenizer-mode", "tokenizer.json"},
                                     {"--num-gpu-blocks-override", "--cache-max-entry-count"},
                                     {"--guided-decoding-backend", "there is only one backend"},
                                     {"--disable-custom-all-reduce", "BULKHEAD_ONE_SHOT=0"},
                                     {"--no-mmap", "never mapped"},
                                     {"--temp", "each request has its own temperature"}}) {
    EXPECT_THAT(Refusal(Serve({theirs, "1"})), HasSubstr(ours)) << theirs;
  }
  EXPECT_THAT(Refusal({"generate", "--temp", "0.5"}), HasSubstr("write --temperature"));
  EXPECT_THAT(Refusal({"generate", "--repeat-penalty", "1"}), HasSubstr("--repetition-penalty"));
}

TEST(UnknownFlagsTest, FlagsOfVllmsBenchmarkSayWhichIsOurs) {
  for (const auto& [theirs, ours] : {std::pair("--backend", "--target is measured over gRPC"),
                                     {"--model", "one model"},
                                     {"--base-url", "--target HOST:PORT"},
                                     {"--host", "--target HOST:PORT"},
                                     {"--port", "--target HOST:PORT"},
                                     {"--endpoint", "--target is measured over gRPC"},
                                     {"--percentile-metrics", "--metric-percentiles"}}) {
    EXPECT_THAT(Refusal({"bench", "serve", theirs, "1"}), HasSubstr(ours)) << theirs;
  }
  EXPECT_THAT(Refusal({"chat", "--port", "8000"}), HasSubstr("write --http HOST:PORT"));
}

}  // namespace
}  // namespace bulkhead
