// Remedies of the bundled sample, each applied as an operator would.
#include "launcher/planning/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/flags/changed_args.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/plan.h"
#include "launcher/planning/remedy_changes.h"

namespace bulkhead {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::unique_ptr<Planned> Plan(const std::vector<std::string>& args) {
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  const auto& options = std::get<PlanOptions>(*command);
  auto plan = MakePlan(options.serve.engine, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::vector<std::string> ArgsOf(const std::string& flags) {
  std::vector<std::string> args = {"plan", "--model", BH_SOURCE_DIR "/examples/models/sample"};
  for (const absl::string_view word : absl::StrSplit(flags, ' ')) args.emplace_back(word);
  return args;
}

// The remedies, each of which was applied and fits.
std::vector<std::string> TrueRemedies(const std::string& flags) {
  const std::vector<std::string> args = ArgsOf(flags);
  const auto refused = Plan(args);
  EXPECT_FALSE(refused->fits());
  std::vector<std::string> texts;
  for (const Remedy& remedy : RemediesOf(*refused).list) {
    EXPECT_TRUE(Plan(ChangedArgs(args, remedy.flags))->fits()) << remedy.text;
    texts.push_back(absl::StrJoin(remedy.flags, " "));
  }
  return texts;
}

TEST(RemediesTest, BytesOfKvFitAsTheyArePrintedWhereBlocksDiffer) {
  const std::string caps = "--tp 3 --device-memory 0=44455047,1=28797457,2=77580868 ";
  EXPECT_THAT(TrueRemedies(caps + "--kv-cache-bytes 44972606"),
              Contains(testing::StartsWith("--kv-cache-bytes ")));
}

TEST(RemediesTest, ADraftModelThatDoesNotFitIsNamedAndCanBeLeftOut) {
  std::vector<std::string> args = ArgsOf("--device-memory 44MiB --max-num-seqs 4");
  args.insert(args.end(), {"--speculative-config",
                           absl::StrCat(R"({"num_speculative_tokens": 3, "model": ")",
                                        BH_SOURCE_DIR, R"(/examples/models/sample"})")});
  const auto refused = Plan(args);
  ASSERT_FALSE(refused->fits());
  EXPECT_THAT(ShortageText(refused->capacity), HasSubstr("for draft_model, which needs"));
  bool found = false;
  for (const Remedy& remedy : RemediesOf(*refused).list) {
    EXPECT_TRUE(Plan(ChangedArgs(args, remedy.flags))->fits()) << remedy.text;
    found |= remedy.text == "--speculative-config null (no draft model)";
  }
  EXPECT_TRUE(found);
}

TEST(RemediesTest, ARuleThatGivesLessThanASequenceIsToldToGrow) {
  EXPECT_EQ(TrueRemedies("--device-memory 1GiB --cache-max-entry-count 3")[0],
            "--cache-max-entry-count 4");
  EXPECT_EQ(TrueRemedies("--device-memory 1GiB --kv-cache-bytes 100k")[0],
            "--kv-cache-bytes 393216");
  EXPECT_EQ(
      TrueRemedies("--device-memory 1GiB --cache-max-entry-count 100 --max-model-len 2048")[0],
      "--cache-max-entry-count 128");
  EXPECT_EQ(TrueRemedies("--device-memory 1GiB --gpu-memory-utilization 0.02")[0],
            "--gpu-memory-utilization 0.04");
}

TEST(RemediesTest, TheReserveIsNamedWhereItIsTheReserve) {
  EXPECT_THAT(TrueRemedies("--device-memory 200MiB --reserve 180MiB"),
              Contains(testing::StartsWith("--reserve ")));
  EXPECT_THAT(TrueRemedies("--tp 2 --device-memory 200MiB --reserve 0=195MiB,1=1MiB"),
              Contains(testing::MatchesRegex("--reserve 0=[0-9]+,1=1048576")));
  // Of a measured host, whose memory differs when measured again.
  const Remedies measured = RemediesOf(*Plan(ArgsOf("--reserve 900TiB")));
  ASSERT_THAT(measured.list, Not(IsEmpty()));
  EXPECT_EQ(measured.list[0].flags[0], "--reserve");
}

TEST(RemediesTest, TwoChangesAreNamedWhereOneDoesNotDo) {
  const std::string flags =
      "--device-memory 15MiB --max-num-batched-tokens 512 --max-model-len 2048 --max-num-seqs 64";
  const std::vector<std::string> pairs = TrueRemedies(flags);
  ASSERT_THAT(pairs, Not(IsEmpty()));
  for (const std::string& pair : pairs) {
    EXPECT_GE(std::vector<std::string>(absl::StrSplit(pair, ' ')).size(), 4U) << pair;
  }
  EXPECT_THAT(RemediesText(RemediesOf(*Plan(ArgsOf(flags)))), HasSubstr(" together with "));
}

TEST(RemediesTest, TooLittleHostMemoryHasItsLeastAndWhatTakesLess) {
  const std::vector<std::string> remedies =
      TrueRemedies("--device-memory 1GiB --host-memory 210MiB --max-model-len 2048");
  ASSERT_THAT(remedies, SizeIs(testing::Ge(2)));
  EXPECT_THAT(remedies[0], testing::StartsWith("--host-memory "));
  EXPECT_THAT(remedies, Contains(testing::StartsWith("--max-model-len ")));
  EXPECT_THAT(TrueRemedies("--device-memory 1GiB --host-memory 213MiB --max-num-queued-reqs 5000"),
              Contains(testing::StartsWith("--max-num-queued-reqs ")));
}

TEST(RemediesTest, HostMemoryIsNamedBesideWhatMakesTheArenasFit) {
  for (const std::string& remedy :
       TrueRemedies("--device-memory 30MiB --host-memory 1 --max-num-batched-tokens 2048")) {
    EXPECT_THAT(remedy, HasSubstr("--host-memory "));
  }
  // Two changes for the arenas only.
  const std::string flags =
      "--device-memory 15MiB --host-memory 1 --max-num-batched-tokens 512 --max-model-len 2048 "
      "--max-num-seqs 64";
  const std::vector<std::string> remedies = TrueRemedies(flags);
  ASSERT_THAT(remedies, Not(IsEmpty()));
  for (const std::string& remedy : remedies) {
    EXPECT_THAT(remedy, HasSubstr("--host-memory "));
    EXPECT_GE(std::vector<std::string>(absl::StrSplit(remedy, ' ')).size(), 6U) << remedy;
  }
  EXPECT_THAT(RemediesText(RemediesOf(*Plan(ArgsOf(flags)))), HasSubstr(" and --host-memory "));
}

TEST(RemediesTest, NothingHelpsOnlyWhereNothingDoes) {
  const auto refused = Plan(ArgsOf("--device-memory 64KiB"));
  const Remedies remedies = RemediesOf(*refused);
  EXPECT_THAT(remedies.list, IsEmpty());
  EXPECT_THAT(remedies.none_because, HasSubstr("no number of ranks"));
}

TEST(RemediesTest, LmDeploysWordStaysTheOneThatIsUsed) {
  const std::vector<std::string> remedies = TrueRemedies(
      "--device-memory 55MiB --quant-policy 8 --max-model-len 512 --max-num-batched-tokens 64 "
      "--cache-max-entry-count 600");
  EXPECT_THAT(remedies, Contains("--quant-policy 4"));
}

TEST(RemediesTest, AGroupOfCapsAndReservesByRankListsBoth) {
  EXPECT_THAT(TrueRemedies("--tp 2 --device-memory 0=9MiB,1=9MiB --reserve 0=1MiB,1=0 "
                           "--max-num-batched-tokens 64 --max-num-seqs 1 --max-model-len 64 "
                           "--weight-dtype int4 --kv-cache-dtype int4"),
              Not(IsEmpty()));
}

TEST(GroupSizesTest, GpusComeInHalvesOfANodeAndInWholeNodes) {
  EXPECT_THAT(GroupSizes(8, 1, true), ElementsAre(16, 24, 32, 40, 48, 56, 64, 4, 2, 1));
  EXPECT_THAT(GroupSizes(2, 1, true), ElementsAre(4, 8, 16, 24, 32, 40, 48, 56, 64, 1));
  EXPECT_THAT(GroupSizes(8, 2, true), Contains(12));  // nodes of four
  EXPECT_THAT(GroupSizes(8, 2, true), Not(Contains(10)));
  EXPECT_THAT(GroupSizes(2, 1, false), SizeIs(63));
  EXPECT_THAT(GroupSizes(4, 2, false), Not(Contains(5)));
}

TEST(ChangedArgsTest, AKvRuleTakesThePlaceOfTheOthersHoweverTheyAreSpelled) {
  for (const std::vector<std::string>& rule : {std::vector<std::string>{"--kv-cache-bytes", "4"},
                                               {"--kv_cache_memory_bytes=4"},
                                               {"--gpu_memory_utilization", "0.5"},
                                               {"--cache-max-entry-count=3"}}) {
    std::vector<std::string> args = {"plan"};
    args.insert(args.end(), rule.begin(), rule.end());
    args.insert(args.end(), {"--", "DIR"});
    EXPECT_THAT(ChangedArgs(args, {"--cache-max-entry-count", "9"}),
                ElementsAre("plan", "--cache-max-entry-count", "9", "--", "DIR"));
    EXPECT_THAT(ChangedArgs(args, {"--tp", "2"}), SizeIs(args.size() + 2));
  }
}

}  // namespace
}  // namespace bulkhead
