#include "launcher/report.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/message_json.h"
#include "base/whole_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/clients/report_text.h"
#include "launcher/planning/capacity_report.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

Capacity Refused() {
  Capacity capacity;
  capacity.limits = {4, 64, 128, 16};
  capacity.binding_rank = 1;
  capacity.limiting_category = MemoryCategory::kLogits;
  capacity.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    capacity.ranks[rank].budget.rank = rank;
    capacity.ranks[rank].budget.host = "a";
    capacity.ranks[rank].budget.total_bytes = 1 << 20;
    capacity.ranks[rank].required_bytes = 3 << 20;
    capacity.ranks[rank].arena_bytes[static_cast<int>(MemoryCategory::kWeights)] = 512 << 10;
  }
  capacity.shortage = Shortage{1, MemoryCategory::kLogits, 2 << 20, 2560 << 10, 512 << 10};
  return capacity;
}

std::string JsonOf(const Capacity& capacity, const Remedies& remedies, const ReportFacts& facts) {
  return MessageToJsonText(ReportOf(capacity, remedies, facts));
}

class ReportFileTest : public testing::Test {
 protected:
  absl::StatusOr<v1::Report> Read(const std::string& text) {
    const std::string path = testing::TempDir() + "/report.json";
    std::ofstream(path) << text;
    return ReadReportFile(path);
  }
};

TEST_F(ReportFileTest, RefusalIsReadBackAsItWasWritten) {
  const Remedies remedies = {{{{"--max-num-seqs", "2"}, "--max-num-seqs 2"}, {{}, "4 ranks"}}, ""};
  const auto report = Read(JsonOf(Refused(), remedies, {.kv_cache_dtype = "int8"}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->fits());
  EXPECT_EQ(report->short_().term(), "logits");
  EXPECT_EQ(report->ranks_size(), 2);
  const std::string text = ExplainReport(*report);
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, HasSubstr("rank 1 on a is the bottleneck, with logits"));
  EXPECT_THAT(text, HasSubstr("2.0 MiB (2097152 bytes) are short"));
  EXPECT_THAT(text, HasSubstr("change first: --max-num-seqs 2"));
  EXPECT_THAT(text, HasSubstr("or instead:   4 ranks"));
}

TEST_F(ReportFileTest, TheHostBudgetIsReadBackAndShown) {
  Capacity capacity = Refused();
  capacity.fits = true;
  capacity.shortage.reset();
  const HostBudget host = FitHostBudget({}, capacity, 1 << 20);
  const auto report = Read(JsonOf(capacity, {{}, "a larger host"}, {.host = host}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->host().total_bytes(), static_cast<uint64_t>(host.total_bytes()));
  EXPECT_EQ(report->host().terms_size(), kNumHostParts);
  EXPECT_FALSE(report->fits());
  EXPECT_THAT(ExplainReport(*report), HasSubstr("host needs"));
  EXPECT_THAT(ExplainReport(*report), HasSubstr("--host-memory"));
}

TEST_F(ReportFileTest, HopelessOneSaysWhyNothingHelps) {
  const auto report =
      Read(JsonOf(Refused(), {{}, "weights alone are larger"}, {.kv_cache_dtype = "int8"}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(ExplainReport(*report), HasSubstr("no change that was tried helps: weights alone"));
}

TEST_F(ReportFileTest, FittingOneNamesPoolAndWhatLiesStranded) {
  Capacity capacity = Refused();
  capacity.fits = true;
  capacity.shortage.reset();
  capacity.limits.num_kv_blocks = 99;
  capacity.ranks[0].stranded_bytes = 1 << 20;
  const auto report = Read(JsonOf(capacity, {}, {.kv_cache_dtype = "int8"}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(ExplainReport(*report), HasSubstr("99 blocks of 16 tokens"));
  EXPECT_THAT(ExplainReport(*report), HasSubstr("1.0 MiB are unused"));
}

TEST_F(ReportFileTest, WhatIsNoReportIsRefusedWithTheFieldThatIsWrong) {
  EXPECT_THAT(ReadReportFile("/nowhere/report.json").status().message(),
              HasSubstr("/nowhere/report.json"));
  for (const char* text : {"", "no json", "[]", "7", "{"}) {
    EXPECT_EQ(Read(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(Read("{}").status().message(), HasSubstr("fits"));
  EXPECT_THAT(Read(R"({"fits": "yes"})").status().message(), HasSubstr("fits"));
  for (const char* rank : {"2", "2147483648", "4294967295"}) {
    std::string text = JsonOf(Refused(), {}, {.kv_cache_dtype = "int8"});
    const size_t at = text.find("\"binding\": {\n    \"rank\": 1");
    ASSERT_NE(at, std::string::npos);
    text.replace(text.find('1', at), 1, rank);
    EXPECT_THAT(Read(text).status().message(), HasSubstr("binding.rank")) << rank;
  }
}

TEST_F(ReportFileTest, WhyAGroupWasLostComesFirst) {
  Capacity capacity = Refused();
  capacity.fits = true;
  capacity.shortage.reset();
  v1::Report written = ReportOf(capacity, {}, {});
  written.set_lost("rank 1 (host b, pid 7) ended: the kernel killed it");
  const auto report = Read(MessageToJsonText(written));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->lost(), written.lost());
  EXPECT_THAT(ExplainReport(*report), testing::StartsWith("The group was lost: " + written.lost()));
}

// The report of a server whose rank 0 is `process`.
std::string ServingReport(const v1::ServedProcess& process) {
  Capacity capacity = Refused();
  capacity.fits = true;
  capacity.shortage.reset();
  v1::Report report = ReportOf(capacity, {}, {});
  report.set_state("serving");
  *report.mutable_process() = process;
  return MessageToJsonText(report);
}

TEST_F(ReportFileTest, AServerThatRunsServes) {
  const auto report = Read(ServingReport(ThisProcess("a")));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(
      ExplainReport(*report),
      testing::StartsWith(absl::StrCat("The server is running: rank 0 (host a, pid ", getpid())));
}

TEST_F(ReportFileTest, AServerThatIsGoneEndedWithoutAWordAndItsCgroupsKillsAreCounted) {
  v1::ServedProcess process = ThisProcess("a");
  process.set_start_ticks(process.start_ticks() + 1);  // its number went to another process
  const std::string events = testing::TempDir() + "/memory.events";
  std::ofstream(events) << "oom_kill 3\n";
  process.set_cgroup("/cgroup/");
  process.set_oom_kill_file(events);
  process.set_oom_kills(3);
  process.set_oom_kills_all_together(false);
  const auto quiet = Read(ServingReport(process));
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_THAT(
      ExplainReport(*quiet),
      testing::AllOf(testing::StartsWith("The server ended without a message: rank 0 (host a"),
                     HasSubstr("killed no process")));
  std::ofstream(events) << "oom_kill 4\n";
  EXPECT_THAT(ExplainReport(*quiet),
              HasSubstr("the kernel killed 1 process of its cgroup for memory (oom_kill 4 in "
                        "/cgroup/)."));
  process.set_oom_kills_all_together(true);
  EXPECT_THAT(ExplainReport(*Read(ServingReport(process))), HasSubstr("memory.oom.group"));
  std::filesystem::remove(events);
  EXPECT_THAT(ExplainReport(*quiet), HasSubstr("can no longer be determined"));
}

TEST_F(ReportFileTest, AServerOfAnotherContainerIsOutOfSight) {
  v1::ServedProcess process = ThisProcess("a");
  process.set_pid_namespace("elsewhere");
  EXPECT_THAT(ExplainReport(*Read(ServingReport(process))), HasSubstr("cannot be seen from this"));
}

TEST_F(ReportFileTest, AnEndThatTheParentSawIsWrittenOnceAndForTheServerThatWroteIt) {
  const std::string path = testing::TempDir() + "/report.json";
  v1::ServedProcess process = ThisProcess("a");
  ASSERT_TRUE(Read(ServingReport(process)).ok());
  ASSERT_TRUE(MarkReportLost(path, process.pid() + 1, "another").ok());
  EXPECT_EQ(ReadReportFile(path)->state(), "serving");
  ASSERT_TRUE(MarkReportLost(path, process.pid(), "rank 0 was killed").ok());
  ASSERT_TRUE(MarkReportLost(path, process.pid(), "too late").ok());
  const auto report = ReadReportFile(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state(), "lost");
  EXPECT_EQ(report->lost(), "rank 0 was killed");
}

TEST_F(ReportFileTest, AFileThatIsNoReportIsNotMarkedAsLost) {
  const std::string path = testing::TempDir() + "/report.json";
  for (const char* text :
       {"", "{", "[1]", R"({"state": 1})", R"({"state": "serving"})",
        R"({"state": "serving", "process": 7})", R"({"state": "serving", "process": [7]})",
        R"({"state": "serving", "process": {"pid": "7"}})"}) {
    std::ofstream(path) << text;
    EXPECT_TRUE(MarkReportLost(path, 7, "rank 0 was killed").ok()) << text;
    EXPECT_EQ(*ReadWholeFile(path), text);
  }
}

}  // namespace
}  // namespace bulkhead
