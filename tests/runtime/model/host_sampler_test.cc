// Rows that the ranks of a group divide among themselves: the samples of the definition at any
// number of ranks and threads, whatever columns a rank has.
#include "runtime/model/host_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <random>

#include "kernels/cpu/cpu_backend.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/shared_samples.h"
#include "tests/runtime/engine/reference_sampler.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

constexpr int64_t kTileRows = 16;

// A step of sequences that decode, its rows of logits, and what a rank 0 without others samples.
struct TestStep {
  Step step;
  std::vector<std::vector<float>> logits;  // [rows]
  std::vector<int> seqs;
  std::vector<int64_t> positions;
  std::vector<absl::StatusOr<GeneratedToken>> want;  // [samples]
  std::vector<bool> looked_at;                       // [samples] not behind a wrong draft token
};

class Steps {
 public:
  explicit Steps(int64_t vocab_size) : vocab_size_(vocab_size) {
    LogitsParams params;
    params.repetition_penalty = 1.3F;
    params.bias = {{0, -2.0F}};
    penalty_ = std::make_unique<LogitsProcessor>(params);
    const TokenId prompt[] = {0, 0};
    penalty_->Begin(prompt, 2, 100);
  }

  // `drafts`: rows behind draft tokens, right and wrong ones.
  TestStep Make(uint64_t seed, int num_seqs, bool drafts) {
    std::mt19937_64 random(seed);
    TestStep made;
    internal::StepPlan& plan = made.step.plan;
    for (int s = 0; s < num_seqs; ++s) {
      const int rows = drafts ? 1 + static_cast<int>(random() % 4) : 1;
      const auto start = static_cast<int>(random() % 50);
      plan.add_slot(s);
      plan.add_num_tokens(rows);
      plan.add_start_position(start);
      plan.add_num_logits(rows);
      SampleRow how = HardSettings(random(), vocab_size_);
      const bool changes = random() % 5 == 0;
      draft_ids_.emplace_back();
      draft_ids_.back().reserve(4);
      for (int i = 0; i < rows; ++i) {
        how.seq_index = s;
        how.position = start + i + 1;
        how.logits = changes ? penalty_.get() : nullptr;
        how.drafted = draft_ids_.back();
        made.logits.push_back(HardRow(random(), vocab_size_));
        made.seqs.push_back(s);
        made.positions.push_back(start + i);
        made.step.samples.push_back(how);
        made.want.push_back(ReferenceSample(made.logits.back(), how));
        const bool right =
            i == 0 || (made.looked_at.back() && made.want[made.want.size() - 2].ok() &&
                       made.want[made.want.size() - 2]->id == draft_ids_.back().back());
        made.looked_at.push_back(right);
        plan.add_token_ids(i == 0 ? 0 : draft_ids_.back().back());
        // Mostly right draft tokens.
        const bool ok = made.want.back().ok();
        const TokenId next = ok && random() % 4 != 0 ? made.want.back()->id : 0;
        draft_ids_.back().push_back(next);
      }
    }
    return made;
  }

 private:
  const int64_t vocab_size_;
  std::unique_ptr<LogitsProcessor> penalty_;
  std::deque<std::vector<TokenId>> draft_ids_;
};

struct Case {
  int64_t vocab_size;
  std::vector<int64_t> cols;  // of each rank
  int threads;
};

class HostSamplerTest : public testing::TestWithParam<Case> {};

// One rank, as ModelRunner calls it.
class RankUnderTest {
 public:
  RankUnderTest(Group& group, const Case& c)
      : case_(c),
        rank_(group.exchange().topology().rank),
        size_(static_cast<int>(c.cols.size())),
        shared_rows_(size_ > 1 ? (kTileRows + size_ - 1) / size_ : 0),
        ledger_(*device_) {
    const CommLimits limits{
        .max_gather_elements = std::max(kTileRows * *std::max_element(c.cols.begin(), c.cols.end()),
                                        shared_rows_ * std::max(c.vocab_size, kMaxSampleFloats))};
    ledger_.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, size_));
    comm_ = *group.Connect(limits, ledger_);
    backend_ = *NewCpuBackend(*device_, {.num_threads = c.threads, .may_spin = false});
    const int64_t rows = rank_ == 0 ? kTileRows : shared_rows_;
    whole_.resize(rows * c.vocab_size);
    scratch_.resize(3, std::vector<std::byte>(Sampler::ScratchBytes(c.vocab_size)));
    std::vector<std::byte*> scratch;
    for (auto& memory : scratch_) scratch.push_back(memory.data());
    sampler_ =
        std::make_unique<HostSampler>(c.vocab_size, scratch, shared_rows_, *backend_, *comm_);
  }

  // Rank 0: the samples. `shares`: the plan says how rows are sampled.
  StepResult Run(const TestStep& test, bool shares) {
    Step step;
    step.plan = test.step.plan;
    if (rank_ == 0) step.samples = test.step.samples;
    Step all = test.step;
    if (shares) AddSharedSamples(all);
    step.plan = all.plan;
    StepResult result;
    result.samples.resize(step.samples.size());
    EXPECT_TRUE(sampler_->Begin(step.plan).ok());
    const auto rows = static_cast<int64_t>(test.seqs.size());
    for (int64_t first = 0; first < rows; first += kTileRows) {
      RunTile(test, step, first, std::min(kTileRows, rows - first), result);
    }
    return result;
  }

  int64_t sampled_rows() const { return sampled_rows_; }

 private:
  void RunTile(const TestStep& test, const Step& step, int64_t first, int64_t rows,
               StepResult& result) {
    const int64_t begin =
        std::accumulate(case_.cols.begin(), case_.cols.begin() + rank_, int64_t{0});
    const int64_t cols = case_.cols[rank_];
    std::vector<float> part;
    for (int64_t i = first; i < first + rows; ++i) {
      const auto from = test.logits[i].begin() + begin;
      part.insert(part.end(), from, from + cols);
    }
    LogitTile tile{absl::MakeConstSpan(test.seqs).subspan(first, rows),
                   absl::MakeConstSpan(test.positions).subspan(first, rows),
                   {}};
    sampler_->Divide(tile);
    const ConstMatrixView mine(reinterpret_cast<const std::byte*>(part.data()), DType::kF32, rows,
                               cols);
    const int64_t own = tile.RowsOf(rank_);
    sampled_rows_ += own;
    const MatrixView whole(reinterpret_cast<std::byte*>(whole_.data()), DType::kF32, own,
                           case_.vocab_size);
    ASSERT_LE(own * case_.vocab_size, static_cast<int64_t>(whole_.size()));
    ASSERT_TRUE((tile.rank_of_row.empty()
                     ? comm_->GatherCols(mine, case_.cols, whole)
                     : comm_->GatherRows(mine, case_.cols, tile.rank_of_row, whole))
                    .ok());
    ASSERT_TRUE(sampler_->Sample(step, tile, whole, result).ok());
  }

  const Case case_;
  const int rank_;
  const int size_;
  const int64_t shared_rows_;
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> whole_;
  std::vector<std::vector<std::byte>> scratch_;
  std::unique_ptr<HostSampler> sampler_;
  int64_t sampled_rows_ = 0;
};

TEST_P(HostSamplerTest, SamplesAreThoseOfTheDefinition) {
  const Case& c = GetParam();
  Steps steps(c.vocab_size);
  std::vector<TestStep> tests;
  const int rounds = c.vocab_size > 10'000 ? 3 : 24;
  for (int round = 0; round < rounds; ++round) {
    tests.push_back(steps.Make(round, 1 + round * 5 % 41, round % 2 == 1));
  }
  RunRanks(static_cast<int>(c.cols.size()), [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    RankUnderTest under_test(group, c);
    for (size_t t = 0; t < tests.size(); ++t) {
      for (const bool shares : {true, false}) {
        const int64_t before = under_test.sampled_rows();
        const StepResult result = under_test.Run(tests[t], shares);
        if (rank > 0) {
          // A sequence with draft tokens stays together, at rank 0 if it is more than a rank's
          // part.
          const bool many = t % 2 == 0 && tests[t].seqs.size() > 3 * c.cols.size();
          const int64_t more = under_test.sampled_rows() - before;
          EXPECT_TRUE(shares ? more > 0 || !many : more == 0) << rank << " " << more;
          continue;
        }
        for (size_t i = 0; i < tests[t].want.size(); ++i) {
          if (!tests[t].looked_at[i]) continue;
          ASSERT_TRUE(SameSample(result.samples[i], tests[t].want[i]))
              << "step " << t << " sample " << i << ": " << result.samples[i].status() << " for "
              << tests[t].want[i].status();
        }
      }
    }
  });
}

std::vector<int64_t> Even(int64_t vocab_size, int ranks) {
  std::vector<int64_t> cols;
  for (int r = 0; r < ranks; ++r)
    cols.push_back(vocab_size * (r + 1) / ranks - vocab_size * r / ranks);
  return cols;
}

INSTANTIATE_TEST_SUITE_P(All, HostSamplerTest,
                         testing::Values(Case{1, {1}, 1}, Case{2345, {2345}, 1},
                                         Case{2345, {2345}, 3}, Case{2345, Even(2345, 2), 2},
                                         Case{2345, Even(2345, 3), 1}, Case{2345, Even(2345, 4), 1},
                                         Case{2345, Even(2345, 8), 1}, Case{7, {3, 0, 4}, 1},
                                         Case{3001, {0, 3000, 0, 1}, 2},
                                         // Rows long enough that several threads share one.
                                         Case{40'001, {40'001}, 3},
                                         Case{40'001, {20'000, 20'001}, 4}));

}  // namespace
}  // namespace bulkhead
