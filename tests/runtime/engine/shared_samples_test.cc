#include "runtime/engine/shared_samples.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

class AnyRows final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t, int64_t, int64_t, const float*) override { return {}; }
};

// Four sequences of 1, 3, 2 and 1 tokens, all of which have logits.
Step FourSequences() {
  Step step;
  const int counts[] = {1, 3, 2, 1};
  for (int s = 0; s < 4; ++s) {
    step.plan.add_slot(s);
    step.plan.add_num_tokens(counts[s]);
    step.plan.add_start_position(10 * s);
    step.plan.add_num_logits(counts[s]);
    for (int i = 0; i < counts[s]; ++i) {
      step.plan.add_token_ids(100 * s + i);
      SampleRow& row = step.samples.emplace_back();
      row.seq_index = s;
      row.position = 10 * s + i + 1;
      row.sampling = {.temperature = 0.5F * static_cast<float>(s),
                      .top_p = 0.9F,
                      .top_k = s,
                      .min_p = 0.25F,
                      .seed = 0xFEDCBA9876543210ULL + s};
      if (s == 1) row.banned = {2, 7, 7};
      if (s == 2) row.num_logprobs = i;
    }
  }
  return step;
}

TEST(SharedSamples, ComeOutOfThePlanAsTheyWentIn) {
  Step step = FourSequences();
  AddSharedSamples(step);
  internal::StepPlan plan;
  ASSERT_TRUE(plan.ParseFromString(step.plan.SerializeAsString()));
  const auto rows = SharedSamplesOf(plan);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), step.samples.size());
  for (size_t i = 0; i < rows->size(); ++i) {
    const SampleRow& got = (*rows)[i];
    const SampleRow& want = step.samples[i];
    EXPECT_EQ(got.seq_index, want.seq_index);
    EXPECT_EQ(got.position, want.position);
    EXPECT_EQ(got.sampling.temperature, want.sampling.temperature);
    EXPECT_EQ(got.sampling.top_p, want.sampling.top_p);
    EXPECT_EQ(got.sampling.top_k, want.sampling.top_k);
    EXPECT_EQ(got.sampling.min_p, want.sampling.min_p);
    EXPECT_EQ(got.sampling.seed, want.sampling.seed);
    EXPECT_EQ(got.num_logprobs, want.num_logprobs);
    EXPECT_EQ(got.banned, want.banned);
  }
}

TEST(SharedSamples, AreNotThoseThatRank0AloneCanSample) {
  Step step = FourSequences();
  LogitsParams params;
  params.bias = {{3, 1.0F}};
  const LogitsProcessor processor(params);
  AnyRows sink;
  step.samples[0].logits = &processor;
  step.samples[6].num_logprobs = kMaxSharedLogprobs + 1;
  step.prompt_logits.push_back({1, &sink});
  AddSharedSamples(step);
  EXPECT_THAT(step.plan.sample_seq(), ElementsAre(2, 2));
  EXPECT_THAT(step.plan.sample_position(), ElementsAre(21, 22));
  EXPECT_TRUE(SharedSamplesOf(step.plan).ok());
}

TEST(SharedSamples, OfASequenceAreAllOrNoneAndCarryFewBans) {
  for (const int bans : {kMaxSharedBanned, kMaxSharedBanned + 1}) {
    Step step = FourSequences();
    step.samples[4].banned.assign(bans, 1);  // until its min_tokens are there, before the next row
    AddSharedSamples(step);
    EXPECT_EQ(step.plan.sample_seq_size(), bans > kMaxSharedBanned ? 5 : 7);
    EXPECT_TRUE(SharedSamplesOf(step.plan).ok());
  }
}

TEST(SharedSamples, OfAWrongPlanAreRefused) {
  const std::function<void(internal::StepPlan&)> faults[] = {
      [](auto& plan) { plan.set_sample_seq(6, 4); },
      [](auto& plan) { plan.set_sample_seq(0, -1); },
      [](auto& plan) { plan.set_sample_seq(1, 0); },
      [](auto& plan) { plan.set_sample_position(0, 0); },
      [](auto& plan) { plan.set_sample_position(0, 2); },
      [](auto& plan) { plan.set_sample_position(2, 11); },
      [](auto& plan) { plan.set_num_logits(3, 0); },
      [](auto& plan) { plan.set_sample_temperature(0, -1); },
      [](auto& plan) { plan.set_sample_temperature(0, std::nanf("")); },
      [](auto& plan) { plan.set_sample_temperature(0, std::numeric_limits<float>::infinity()); },
      [](auto& plan) { plan.set_sample_top_p(0, 0); },
      [](auto& plan) { plan.set_sample_top_p(0, 1.5F); },
      [](auto& plan) { plan.set_sample_top_k(0, -1); },
      [](auto& plan) { plan.set_sample_min_p(0, std::nanf("")); },
      [](auto& plan) { plan.set_sample_num_logprobs(0, -2); },
      [](auto& plan) { plan.set_sample_num_logprobs(0, kMaxSharedLogprobs + 1); },
      [](auto& plan) { plan.set_sample_num_banned(0, -1); },
      [](auto& plan) { plan.set_sample_num_banned(6, 1); },
      [](auto& plan) { plan.set_sample_num_banned(3, 2); },
      [](auto& plan) { plan.set_sample_banned(0, 9); },
      [](auto& plan) { plan.add_sample_banned(9); },
      [](auto& plan) {  // of the last row, more than are sent
        for (int i = 0; i <= kMaxSharedBanned; ++i) plan.add_sample_banned(9);
        plan.set_sample_num_banned(6, kMaxSharedBanned + 1);
      },
      [](auto& plan) { plan.add_sample_seed(1); },
      [](auto& plan) { plan.mutable_sample_top_p()->RemoveLast(); }};
  for (size_t i = 0; i < std::size(faults); ++i) {
    Step step = FourSequences();
    AddSharedSamples(step);
    EXPECT_TRUE(SharedSamplesOf(step.plan).ok());
    faults[i](step.plan);
    EXPECT_EQ(SharedSamplesOf(step.plan).status().code(), absl::StatusCode::kInternal) << i;
  }
}

std::vector<int> Divided(const std::vector<int>& group_of_row, int ranks, int64_t most) {
  std::vector<int> rank_of_row = {9, 9, 9};
  DivideRows(group_of_row, ranks, most, rank_of_row);
  return rank_of_row;
}

TEST(SharedSamples, AreDividedEvenlyAndSequencesStayWhole) {
  EXPECT_THAT(Divided({}, 2, 16), ElementsAre());
  EXPECT_THAT(Divided({4}, 3, 11), ElementsAre(0));
  EXPECT_THAT(Divided({0, 1, 2, 3, 4}, 2, 3), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(Divided({0, 0, 0, 1, 2, 3}, 2, 3), ElementsAre(0, 0, 0, 1, 1, 1));
  // What rank 0 alone can do counts for it.
  EXPECT_THAT(Divided({-1, 1, -1, 3, -1, 5}, 2, 4), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(Divided({-1, -1, 2, 3}, 4, 1), ElementsAre(0, 0, 1, 2));
  // A rank but 0 gets no more than it has room for.
  EXPECT_THAT(Divided({-1, -1, -1, 0, 1, 2}, 2, 2), ElementsAre(0, 0, 0, 1, 1, 0));
  EXPECT_THAT(Divided({0, 0, 1, 1, 1}, 3, 2), ElementsAre(0, 0, 0, 0, 0));
  std::vector<int> groups(32);
  for (int i = 0; i < 32; ++i) groups[i] = i;
  for (const int ranks : {2, 3, 5, 7, 8, 33}) {
    const int most = (32 + ranks - 1) / ranks;
    const std::vector<int> ranks_of = Divided(groups, ranks, most);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto rows = std::count(ranks_of.begin(), ranks_of.end(), rank);
      EXPECT_TRUE(rows == most || rows == most - 1) << ranks << " " << rank;
    }
  }
}

TEST(SharedSamples, TravelAsBits) {
  SampleRow row;
  row.num_logprobs = 3;
  GeneratedToken token;
  token.id = 0x7FC00001;  // NaN as a float
  token.logprob = -0.0F;
  token.rank = 0x7F800001;
  token.top = {{-5, -1e-45F}, {128'255, -std::numeric_limits<float>::infinity()}};
  const std::vector<SampleRow> rows = {SampleRow(), row};
  const int64_t floats = SampleFloats(rows);
  EXPECT_EQ(floats, 10);
  EXPECT_EQ(SampleFloats(absl::MakeConstSpan(rows).first(1)), 1);
  std::vector<float> packed(floats);
  PackSample(token, row, absl::MakeSpan(packed));
  const auto got = UnpackSample(packed, row);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->id, token.id);
  EXPECT_TRUE(std::signbit(*got->logprob));
  EXPECT_EQ(got->rank, token.rank);
  ASSERT_EQ(got->top.size(), 2);
  EXPECT_EQ(got->top[0].id, -5);
  EXPECT_EQ(got->top[0].logprob, -1e-45F);
  EXPECT_EQ(got->top[1].logprob, token.top[1].logprob);
  PackSample(token, rows[0], absl::MakeSpan(packed).first(1));
  EXPECT_EQ(UnpackSample(packed, rows[0])->logprob, std::nullopt);
  for (const absl::Status& error : {NotFiniteError(row), NothingToSampleError(row)}) {
    PackSample(error, row, absl::MakeSpan(packed));
    EXPECT_EQ(UnpackSample(packed, row).status(), error);
  }
}

}  // namespace
}  // namespace bulkhead
