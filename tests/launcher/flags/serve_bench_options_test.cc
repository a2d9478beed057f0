#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/exit_code.h"
#include "launcher/flags/options.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Options>
Options Parsed(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  const Options* options = command.ok() ? std::get_if<Options>(&*command) : nullptr;
  EXPECT_NE(options, nullptr);
  return options == nullptr ? Options() : *options;
}

std::string Refused(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  const absl::Status status = ParseCommandLine(args).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  return std::string(status.message());
}

TEST(ServeBenchOptions, DefaultsAreThoseOfVllmsBenchmark) {
  const auto options = Parsed<ServeBenchOptions>({"serve"});
  EXPECT_EQ(options.dataset.input_len, 1024);
  EXPECT_EQ(options.dataset.output_len, 128);
  EXPECT_FALSE(options.arrivals.open_loop());
  EXPECT_EQ(options.arrivals.burstiness, 1);
  EXPECT_FALSE(options.max_concurrency.has_value());
  EXPECT_FALSE(options.result_dir.has_value());
  EXPECT_THAT(options.percents, ElementsAre(90, 95, 99, 99.9));
}

TEST(ServeBenchOptions, VllmsNamesAreUnderstood) {
  const auto options = Parsed<ServeBenchOptions>({"serve",
                                                  "--request-rate",
                                                  "2.5",
                                                  "--burstiness=inf",
                                                  "--max-concurrency",
                                                  "7",
                                                  "--num-prompts",
                                                  "30",
                                                  "--random-input-len",
                                                  "64",
                                                  "--random-output-len",
                                                  "8",
                                                  "--random-range-ratio",
                                                  "0.25",
                                                  "--goodput",
                                                  "ttft:200,tpot:20",
                                                  "--goodput",
                                                  "e2el:900",
                                                  "--metric-percentiles",
                                                  "50,99",
                                                  "--save-result",
                                                  "--save-detailed",
                                                  "--metadata",
                                                  "a=b=c",
                                                  "--seed",
                                                  "9",
                                                  "--disable-tqdm",
                                                  "--num-warmups",
                                                  "0"});
  EXPECT_EQ(options.arrivals.request_rate, 2.5);
  EXPECT_TRUE(std::isinf(options.arrivals.burstiness));
  EXPECT_EQ(options.max_concurrency, 7);
  EXPECT_EQ(options.dataset.num_prompts, 30);
  EXPECT_EQ(options.dataset.input_len, 64);
  EXPECT_EQ(options.dataset.range_ratio, 0.25);
  EXPECT_EQ(options.dataset.seed, 9);
  EXPECT_EQ(options.goodput, (Goodput{200.0, 20.0, 900.0}));
  EXPECT_THAT(options.percents, ElementsAre(50, 99));
  EXPECT_EQ(options.result_dir, ".");
  EXPECT_TRUE(options.save_detailed);
  EXPECT_EQ(options.metadata.at("a"), "b=c");
  EXPECT_FALSE(options.progress);
  EXPECT_EQ(options.args.front(), "--request-rate");
}

TEST(ServeBenchOptions, PrefixRepetitionHasLengthsOfItsOwn) {
  const auto options = Parsed<ServeBenchOptions>({"serve", "--dataset-name", "prefix_repetition"});
  EXPECT_EQ(options.dataset.prefix_len, 256);
  EXPECT_EQ(options.dataset.input_len, 256);
  EXPECT_EQ(options.dataset.num_prefixes, 10);
}

TEST(ServeBenchOptions, BadValuesAreNamedWithTheirLimits) {
  EXPECT_THAT(Refused({"serve", "--request-rate", "0"}),
              HasSubstr("--request-rate: 0 is out of range: at least 0.001, at most 1e+06"));
  EXPECT_THAT(Refused({"serve", "--request-rate", "nan"}), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(Refused({"serve", "--goodput", "tftt:200"}),
              HasSubstr("'tftt:200' is none of ttft:MS, tpot:MS, e2el:MS"));
  EXPECT_THAT(Refused({"serve", "--goodput", "ttft"}), HasSubstr("'ttft' is none of ttft:MS"));
  EXPECT_THAT(Refused({"serve", "--goodput", "ttft:soon"}), HasSubstr("'soon' is not a number"));
  EXPECT_THAT(Refused({"serve", "--goodput", "ttft:5,ttft:6"}), HasSubstr("ttft is named twice"));
  EXPECT_THAT(Refused({"serve", "--goodput", "e2el:5,e2e:6"}), HasSubstr("e2e is named twice"));
  EXPECT_THAT(Refused({"serve", "--metric-percentiles", "90,90"}), HasSubstr("90 is named twice"));
  EXPECT_THAT(Refused({"serve", "--temperature", "0x1"}), HasSubstr("'0x1' is not a number"));
  EXPECT_THAT(Refused({"serve", "--random-range-ratio", "1"}),
              HasSubstr("at least 0, at most 0.99"));
  EXPECT_THAT(Refused({"serve", "--metadata", "a"}), HasSubstr("'a' is not KEY=VALUE"));
  EXPECT_THAT(Refused({"serve", "--dataset-name", "sharegpt"}), HasSubstr("sharegpt"));
  EXPECT_THAT(Refused({"serve", "--reqest-rate", "1"}), HasSubstr("did you mean --request-rate?"));
  EXPECT_THAT(Refused({"swep"}), HasSubstr("did you mean sweep?"));
}

TEST(ServeBenchOptions, FlagsThatContradictEachOtherAreRefused) {
  EXPECT_THAT(Refused({"serve", "--dataset-name", "trace"}), HasSubstr("need --dataset-path"));
  EXPECT_THAT(Refused({"serve", "--dataset-path", "x"}), HasSubstr("needs --dataset-name"));
  EXPECT_THAT(Refused({"serve", "--ramp-up-strategy", "linear"}),
              HasSubstr("needs --ramp-up-start-rps"));
  EXPECT_THAT(Refused({"serve", "--ramp-up-end-rps", "4"}), HasSubstr("need --ramp-up-strategy"));
  EXPECT_THAT(Refused({"serve", "--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1",
                       "--ramp-up-end-rps", "4", "--request-rate", "3"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(
      Refused({"serve", "--dataset-name", "trace", "--dataset-path", "x", "--request-rate", "3"}),
      HasSubstr("a trace has its own times"));
}

}  // namespace
}  // namespace bulkhead
