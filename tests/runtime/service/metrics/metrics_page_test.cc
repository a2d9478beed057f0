// The text of /metrics, from an engine that the test controls.
#include "runtime/service/metrics/metrics_page.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/fake_engine.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class MetricsPageTest : public testing::Test {
 protected:
  MetricsPageTest() {
    HostQuotas quotas;
    quotas.metrics_bytes = MaxMetricsBytes(2);
    Begin(quotas);
  }
  void Begin(const HostQuotas& quotas) {
    core_ = std::make_unique<ServiceCore>(quotas);
    page_ = std::make_unique<MetricsPage>(core_.get());
  }
  void SetReady(int ranks = 2, const std::string& name = "letters") {
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.rules.adapters = {{"sql", ""}, {"chess", ""}};
    parts.model_info.set_served_model_name(name);
    parts.server_info.set_block_size(16);
    parts.server_info.set_num_kv_blocks(40);
    parts.server_info.set_kv_cache_dtype("bf16");
    parts.rank_table.set_binding_rank(1);
    parts.rank_table.set_binding_term("kv");
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankRow& row = *parts.rank_table.add_ranks();
      row.set_rank(rank);
      row.set_host(std::string(64, 'h'));
      row.set_device("cpu");
      row.set_free_bytes(UINT64_MAX >> 12);
      for (const char* const term : {"weights", "kv", "activations", "logits", "collectives",
                                     "sampling", "workspace", "kernels", "graphs", "state"}) {
        v1::Arena& arena = *row.add_arenas();
        arena.set_term(term);
        arena.set_bytes(100 + rank);
      }
      load_.add_rank_steps()->set_decode_steps(10);
      load_.mutable_rank_steps(rank)->set_decode_compute_s(1 + rank * .5);
      load_.add_device_memory()->set_free_bytes(UINT64_MAX >> 12);
    }
    engine_.SetLoad(load_);
    core_->SetReady(std::move(parts));
  }
  // name{labels} -> value.
  std::map<std::string, double> Read() {
    const absl::StatusOr<std::string> text = page_->Text();
    EXPECT_TRUE(text.ok()) << text.status();
    std::map<std::string, double> values;
    for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      if (line[0] == '#') continue;
      const size_t at = line.rfind(' ');
      values[std::string(line.substr(0, at))] =
          std::strtod(std::string(line.substr(at + 1)).c_str(), nullptr);
    }
    return values;
  }

  FakeEngine engine_;
  v1::LoadInfo load_;
  std::unique_ptr<ServiceCore> core_;
  std::unique_ptr<MetricsPage> page_;
};

constexpr char kVllm[] = "{model_name=\"letters\",engine=\"0\"}";

TEST_F(MetricsPageTest, BeforeReadyThereIsNothingToTell) {
  EXPECT_EQ(ReasonOf(page_->Text().status()), reason::kStarting);
}

TEST_F(MetricsPageTest, NamesLabelsAndValuesAreThoseOfTheReading) {
  load_.set_num_requests_running(3);
  load_.set_num_kv_blocks(40);
  load_.set_num_kv_blocks_used(10);
  load_.set_generation_tokens_total(77);
  load_.set_prefix_cache_hits_total(9);
  EngineMetrics metrics(64);
  metrics.CountStep(9);
  metrics.CountStep(1);
  metrics.prompt_tokens = 12;
  metrics.cached_prompt_tokens = 8;
  metrics.last_step_age_s = 2.5;
  engine_.SetMetrics(metrics);
  SetReady();
  core_->errors.Add(WithReason(absl::ResourceExhaustedError("full"), reason::kQueueFull));
  core_->errors.AddReason(reason::kMalformedRequest);
  std::map<std::string, double> values = Read();
  EXPECT_EQ(values[absl::StrCat("vllm:num_requests_running", kVllm)], 3);
  EXPECT_EQ(values[absl::StrCat("vllm:kv_cache_usage_perc", kVllm)], .25);
  EXPECT_EQ(values[absl::StrCat("vllm:generation_tokens_total", kVllm)], 77);
  EXPECT_EQ(values[absl::StrCat("vllm:iteration_tokens_total_count", kVllm)], 2);
  EXPECT_EQ(values[absl::StrCat("vllm:iteration_tokens_total_sum", kVllm)], 10);
  const std::string of_step =
      R"(vllm:iteration_tokens_total_bucket{model_name="letters",engine="0",le=)";
  EXPECT_EQ(values[of_step + R"("1"})"], 1);
  EXPECT_EQ(values[of_step + R"("16"})"], 2) << "buckets are cumulative";
  EXPECT_EQ(values[of_step + R"("+Inf"})"], 2);
  EXPECT_EQ(
      values
          [R"(vllm:prompt_tokens_by_source_total{model_name="letters",engine="0",source="local_compute"})"],
      4);
  EXPECT_EQ(
      values
          [R"(vllm:prompt_tokens_cached_by_source_total{model_name="letters",engine="0",source="device"})"],
      8);
  EXPECT_EQ(
      values
          [R"(vllm:admission_rejections_total{model_name="letters",engine="0",reason="QUEUE_FULL"})"],
      1);
  EXPECT_EQ(values[R"(bulkhead_rejects_total{model_name="letters",reason="MALFORMED_REQUEST"})"],
            1);
  EXPECT_GT(
      values
          [R"(vllm:lora_requests_info{model_name="letters",engine="0",max_lora="2",running_lora_adapters="",waiting_lora_adapters=""})"],
      0);
  EXPECT_EQ(values[R"(bulkhead_last_step_age_seconds{model_name="letters"})"], 2.5);
  EXPECT_EQ(values[R"(bulkhead_binding_rank{model_name="letters",term="kv"})"], 1);
  EXPECT_EQ(values[R"(bulkhead_rank_arena_bytes{model_name="letters",rank="1",arena="kv"})"], 101);
  EXPECT_DOUBLE_EQ(values[R"(bulkhead_step_skew_seconds{model_name="letters",phase="decode"})"],
                   .05);
  EXPECT_EQ(values[R"(bulkhead_step_skew_seconds{model_name="letters",phase="prefill"})"], 0);
}

TEST_F(MetricsPageTest, RejectionsAreThoseForWantOfRoomAndEveryReasonOfTheseIsThere) {
  SetReady();
  core_->errors.Add(WithReason(absl::ResourceExhaustedError("short"), reason::kRequestBytes));
  core_->errors.Add(WithReason(absl::ResourceExhaustedError("short"), reason::kStructuredOutput));
  for (int i = 0; i < 5; ++i) {
    core_->errors.Add(WithReason(absl::InvalidArgumentError("wrong"), reason::kStructuredOutput));
    core_->errors.Add(WithReason(absl::ResourceExhaustedError("slow"), reason::kSlowReader));
  }
  std::map<std::string, double> values = Read();
  const auto rejections = [&](const std::string& word) {
    const auto found = values.find(absl::StrCat(
        "vllm:admission_rejections_total{model_name=\"letters\",engine=\"0\",reason=\"", word,
        "\"}"));
    return found == values.end() ? -1 : found->second;
  };
  EXPECT_EQ(rejections(reason::kRequestBytes), 1);
  EXPECT_EQ(rejections(reason::kStructuredOutput), 1);
  for (const char* const word : {reason::kQueueFull, reason::kKvBudget, reason::kAnswerBudget,
                                 reason::kHostMemory, reason::kTooManyCalls}) {
    EXPECT_EQ(rejections(word), 0) << word;
  }
  EXPECT_EQ(rejections(reason::kSlowReader), -1);
  EXPECT_EQ(values[R"(bulkhead_rejects_total{model_name="letters",reason="STRUCTURED_OUTPUT"})"],
            6);
}

TEST_F(MetricsPageTest, TheLongestPageIsWithinThePlan) {
  for (const int ranks : {1, 8, 128}) {
    HostQuotas quotas;
    quotas.metrics_bytes = MaxMetricsBytes(ranks);
    Begin(quotas);
    load_.Clear();
    EngineMetrics metrics(int64_t{1} << 40);
    for (int i = 0; i < 1000; ++i) metrics.CountStep(UINT64_MAX >> 20);
    engine_.SetMetrics(metrics);
    SetReady(ranks, std::string(5000, '\n'));  // written as two bytes
    EXPECT_GT(page_->Text()->size(), 40'000);
  }
}

TEST_F(MetricsPageTest, APageAboveThePlanIsRefused) {
  HostQuotas quotas;
  quotas.metrics_bytes = 10'000;
  Begin(quotas);
  SetReady();
  EXPECT_EQ(ReasonOf(page_->Text().status()), reason::kHostMemory);
  EXPECT_THAT(page_->Text().status().message(), HasSubstr("planned are 10000"));
}

}  // namespace
}  // namespace bulkhead
