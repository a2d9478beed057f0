// Drafts on emulated GPUs, by lookup, by a draft model and by an MTP layer: what a step samples
// behind each of them is what its own logits give, on the device as on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "tests/runtime/model/draft_rig.h"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/runtime/model/mtp_checkpoint.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr char kModel[] = "llama3_gqa_bf16";

// Prompts that repeat themselves; sampled greedily, with a top_k and with bans. `on_host`: with log
// probabilities, so that all are sampled from whole rows.
std::vector<Request> Requests(bool on_host = false) {
  const std::vector<int32_t> all = ReadGolden(Dir(kModel)).prompts[2];
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = std::to_string(i);
    for (int times = 0; times < 3; ++times) {
      request.prompt.insert(request.prompt.end(), all.begin() + i, all.begin() + i + 6);
    }
    request.sampling = {.temperature = i % 3 == 1 ? 0.3F : 0.0F, .top_k = 20, .seed = uint64_t(i)};
    if (i == 5) request.logits.presence_penalty = 0.5F;  // on the host
    if (on_host) request.num_logprobs = 0;
    request.stopping.max_tokens = 12 + i;
    request.stopping.min_tokens = i % 4 == 3 ? 9 : 0;
    request.stopping.stop_token_ids = {3, 8};
    request.stopping.ignore_eos = true;
    request.wants_text = false;
  }
  return requests;
}

// A row that is verified has other bits than one that is decoded, up to rounding. So each token of
// a greedy answer must be near the greatest of the CPU's logits behind the tokens before it.
void ExpectNearTheGreatest(const std::string& model, const DraftOutcome& run) {
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(model));
  const ModelLimits limits = LoadedRunner::Limits(config);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  LoadedRunner cpu(Dir(model), plan, limits, *group);
  const std::vector<Request> requests = Requests();
  ASSERT_EQ(run.tokens.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].sampling.temperature > 0 || !requests[i].logits.off()) continue;
    const auto count = static_cast<int>(run.tokens[i].size());
    ASSERT_GE(count, 1);
    std::vector<int32_t> all = requests[i].prompt;
    all.insert(all.end(), run.tokens[i].begin(), run.tokens[i].end() - 1);
    const StepOutput rows = RunHere(*cpu, MakeStep(limits, i + 1, {{0, 0, all, count}}));
    for (int t = 0; t < count; ++t) {
      const float* const row = &rows.logits[int64_t{t} * config.vocab_size];
      // An id that min_tokens rules out may be greater.
      if (t < requests[i].stopping.min_tokens) continue;
      EXPECT_GE(row[run.tokens[i][t]], row[rows.ids[t]] - kClearMargin) << i << ", " << t;
    }
  }
}

// More rows than are sampled at once, of sequences with 16 drafts each, on the device and on the
// host, from the same logits but for the tiles that these are computed in.
TEST(CudaDraftRows, AreEachSampledAsTheHostDoes) {
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(kModel));
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.kv_format = KvFormat::kBF16;
  limits.max_num_seqs = 12;
  limits.max_num_batched_tokens = 256;
  limits.max_drafts = kMaxDraftTokens;
  ASSERT_LT(SampledAtOnce(limits), MaxSampledRows(limits));
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  LoadedRunner runner(Dir(kModel), plan, limits, *group, std::nullopt,
                      [] { return EmulatedDevice(emulator::Schedule::kAscending, true); });
  const std::vector<int32_t> all = ReadGolden(Dir(kModel)).prompts[2];
  std::vector<StepRow> rows;
  for (int slot = 0; slot < limits.max_num_seqs; ++slot) {
    rows.push_back({slot, 0, {all.begin() + slot, all.begin() + slot + 17}, 17});
  }
  Step step = MakeStep(limits, 1, rows);
  for (size_t i = 0; i < step.samples.size(); ++i) {
    SampleRow& row = step.samples[i];
    const int kind = row.seq_index % 4;
    if (kind > 0) row.sampling = {.temperature = 0.5F, .top_k = 30, .seed = uint64_t(kind)};
    if (kind > 1) row.sampling.top_p = 0.8F;
    if (kind > 2 && row.position < 9) row.banned = {3, 8, 100};
    if (row.seq_index % 3 == 2) row.sampling.top_k = 0;
  }
  const auto ids_of = [&](bool on_device) {
    Step copy = step;
    for (int s = 0; s < copy.plan.slot_size(); ++s) {
      const bool whole = s % 4 > 0 && s % 3 == 2;
      copy.plan.add_from_candidates(on_device && !whole);
      copy.plan.add_from_row(on_device && whole);
    }
    std::vector<int32_t> ids;
    const absl::StatusOr<StepResult> result = RunStep(*runner, std::move(copy));
    EXPECT_TRUE(result.ok()) << result.status();
    for (const auto& sample : result->samples) ids.push_back(sample->id);
    return ids;
  };
  const std::vector<int32_t> on_host = ids_of(false);
  EXPECT_EQ(on_host.size(), 12U * 17U);
  EXPECT_EQ(ids_of(true), on_host);
}

TEST(CudaDraftRows, MoreThanTheLimitsSayAreRefused) {
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(kModel));
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.kv_format = KvFormat::kBF16;
  limits.max_drafts = 2;
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  LoadedRunner runner(Dir(kModel), plan, limits, *group, std::nullopt,
                      [] { return EmulatedDevice(emulator::Schedule::kAscending, false); });
  for (const int rows : {0, 3, 4}) {
    Step step = MakeStep(limits, 1, {{0, 0, {5, 6, 7, 8}, rows}});
    step.plan.add_from_candidates(true);
    const absl::Status done = RunStep(*runner, step).status();
    EXPECT_EQ(done.ok(), rows == 3) << done;
    EXPECT_TRUE(done.ok() || ExitCodeOf(done) == ExitCode::kBug);
  }
}

struct GpuCase {
  int size = 1;
  bool late = false;
  bool graphs = false;
};
std::ostream& operator<<(std::ostream& out, const GpuCase& c) {
  return out << "tp " << c.size << (c.late ? ", late" : "") << (c.graphs ? ", graphs" : "");
}

DraftSetting On(const GpuCase& c) {
  DraftSetting setting{.size = c.size};
  setting.make_device = [late = c.late] {
    return EmulatedDevice(emulator::Schedule::kAscending, late);
  };
  setting.graphs = c.graphs;
  setting.kv_format = KvFormat::kBF16;
  setting.requests = Requests();
  return setting;
}

class CudaDrafts : public testing::TestWithParam<GpuCase> {};
INSTANTIATE_TEST_SUITE_P(Gpus, CudaDrafts,
                         testing::Values(GpuCase{1, true, true}, GpuCase{1, false, false},
                                         GpuCase{2, true, false}));

TEST_P(CudaDrafts, ByLookupAreSampledOnTheDeviceAsOnTheHost) {
  DraftSetting setting = On(GetParam());
  setting.lookup = 1;
  const DraftOutcome run = Generate(kModel, setting);
  ExpectNearTheGreatest(kModel, run);
  EXPECT_GT(run.drafts.accepted_tokens, 0);
  EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens);
  setting.requests = Requests(true);
  EXPECT_EQ(Generate(kModel, setting).tokens, run.tokens);
}

TEST_P(CudaDrafts, OfTheModelItselfAreAcceptedAndOfAnotherNot) {
  DraftSetting setting = On(GetParam());
  for (const std::string draft : {kModel, "qwen2_14h_bf16"}) {
    setting.draft = draft;
    const DraftOutcome run = Generate(kModel, setting);
    ExpectNearTheGreatest(kModel, run);
    EXPECT_GT(run.drafts.draft_tokens, 20) << draft;
    const bool are_right = run.drafts.accepted_tokens > run.drafts.draft_tokens * 3 / 4;
    EXPECT_EQ(are_right, draft == kModel) << draft;
  }
}

TEST_P(CudaDrafts, OfAModelWithStatesThatDraftsForItselfAreAccepted) {
  const std::string model = "qwen3_5_bf16";
  DraftSetting setting = On(GetParam());
  setting.draft = model;
  const DraftOutcome run = Generate(model, setting);
  ExpectNearTheGreatest(model, run);
  EXPECT_GT(run.drafts.accepted_tokens, run.drafts.draft_tokens * 3 / 4);
  EXPECT_GT(run.drafts.accepted_tokens, 20);
}

// One of five ranks has none of the four heads of a draft model, and no memory for its keys and
// values, which lies behind the model's on all others.
TEST(CudaDraftPools, GrowOnARankWithoutHeadsOfTheDraftModel) {
  const std::string draft = "phi3_longrope_short_bf16";  // 4 heads
  DraftSetting setting = On({5, false, false});
  setting.draft = draft;
  setting.grows = true;
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(draft));
  const ShardPlan plan = *ShardPlan::Create(config, setting.size);
  int without = 0;
  for (int rank = 0; rank < setting.size; ++rank) {
    without += plan.rank(rank).kv_heads.size() == 0 ? 1 : 0;
  }
  ASSERT_EQ(without, 1);
  // How many drafts are worth their time depends on the time that they take here.
  ExpectNearTheGreatest(kModel, Generate(kModel, setting));
}

TEST_P(CudaDrafts, OfAnMtpLayerThatIsRightAreAccepted) {
  for (const std::string fixture : {"deepseek_v3_bf16", "glm4_moe_bf16", "qwen3_5_bf16"}) {
    const MtpCheckpoint checkpoint(fixture, MtpKind::kRight);
    DraftSetting setting = On(GetParam());
    setting.draft = checkpoint.dir();
    setting.mtp = true;
    const DraftOutcome run = Generate(checkpoint.dir(), setting);
    ExpectNearTheGreatest(checkpoint.dir(), run);
    EXPECT_GT(run.drafts.accepted_tokens, run.drafts.draft_tokens * 3 / 4) << fixture;
    EXPECT_GT(run.drafts.accepted_tokens, 20) << fixture;
  }
}

}  // namespace
}  // namespace bulkhead
