// The time of sampling a step's rows of 128,256 ids, by setting, rows, ranks (as threads) and
// threads of each: sampler_bench [REPEATS [ROWS RANKS THREADS]]. Gathers are in it, the model is
// not.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "comm/local/local_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/shared_samples.h"
#include "runtime/model/host_sampler.h"

namespace bulkhead {
namespace {

constexpr int64_t kVocab = 128'256;
constexpr int64_t kTileRows = 32;

struct Setting {
  const char* name;
  SamplingParams sampling;
  std::optional<int> num_logprobs = {};
  bool penalties = false;
  float deviation = 1;  // of the logits, which are normal
};

const Setting kSettings[] = {
    {"greedy", {.temperature = 0}},
    {"temperature 1", {}},
    {"temperature 1, deviation 3", {}, {}, false, 3},
    {"top-p 0.95", {.top_p = 0.95F}},
    {"top-p 0.95, deviation 3", {.top_p = 0.95F}, {}, false, 3},
    {"min-p 0.05", {.min_p = 0.05F}},
    {"min-p 0.05 and top-p 0.9, deviation 3", {.top_p = 0.9F, .min_p = 0.05F}, {}, false, 3},
    {"top-k 50", {.top_k = 50}},
    {"top-k 50 and top-p 0.9", {.top_p = 0.9F, .top_k = 50}},
    {"top-k 5000", {.top_k = 5000}},
    {"penalties, temperature 1", {}, {}, true},
    {"penalties and top-p 0.95", {.top_p = 0.95F}, {}, true},
    {"five logprobs, greedy", {.temperature = 0}, 5},
    {"penalties, top-p 0.95, five logprobs", {.top_p = 0.95F}, 5, true},
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double ProcessSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Shape {
  int rows = 0;
  int ranks = 0;
  int threads = 0;
};

std::vector<std::vector<float>> MadeRows(const Setting& setting, int rows) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, setting.deviation);
  std::vector<std::vector<float>> made(rows, std::vector<float>(kVocab));
  for (std::vector<float>& row : made) {
    for (float& logit : row) logit = normal(random);
  }
  return made;
}

// A step that decodes, one token for each sequence.
Step MadeStep(const Setting& setting, int rows, const LogitsProcessor* penalties) {
  Step step;
  for (int s = 0; s < rows; ++s) {
    step.plan.add_slot(s);
    step.plan.add_num_tokens(1);
    step.plan.add_start_position(1000);
    step.plan.add_num_logits(1);
    step.plan.add_token_ids(0);
    SampleRow& row = step.samples.emplace_back();
    row.seq_index = s;
    row.sampling = setting.sampling;
    row.sampling.seed = s;
    row.position = 1001;
    row.num_logprobs = setting.num_logprobs;
    row.logits = setting.penalties ? penalties : nullptr;
  }
  AddSharedSamples(step);
  return step;
}

class BenchRank {
 public:
  BenchRank(Group& group, const Shape& shape)
      : rank_(group.exchange().topology().rank), shape_(shape), ledger_(*device_) {
    for (int r = 0; r < shape.ranks; ++r)
      cols_.push_back(kVocab * (r + 1) / shape.ranks - kVocab * r / shape.ranks);
    first_id_ = kVocab * rank_ / shape.ranks;
    const int64_t shared = (kTileRows + shape.ranks - 1) / shape.ranks;
    const CommLimits limits{.max_gather_elements = (kTileRows + shape.ranks) * cols_[0] * 2};
    ledger_.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, shape.ranks));
    comm_ = *group.Connect(limits, ledger_);
    backend_ = *NewCpuBackend(*device_, {.num_threads = shape.threads, .may_spin = false});
    whole_.resize(kTileRows * kVocab);
    scratch_.resize(8, std::vector<std::byte>(Sampler::ScratchBytes(kVocab)));
    std::vector<std::byte*> scratch;
    for (auto& memory : scratch_) scratch.push_back(memory.data());
    sampler_ = std::make_unique<HostSampler>(kVocab, scratch, shape.ranks > 1 ? shared : 0,
                                             *backend_, *comm_);
  }

  // A step; returns what its sampling took.
  double Run(const std::vector<std::vector<float>>& rows, const Step& all) {
    Step step;
    step.plan = all.plan;
    if (rank_ == 0) step.samples = all.samples;
    StepResult result;
    result.samples.resize(step.samples.size());
    BH_CHECK(sampler_->Begin(step.plan).ok());
    double seconds = 0;
    for (int64_t first = 0; first < std::ssize(rows); first += kTileRows) {
      const int64_t n = std::min<int64_t>(kTileRows, std::ssize(rows) - first);
      part_.resize(n * cols_[rank_]);  // what the model computes
      for (int64_t i = 0; i < n; ++i) {
        std::copy_n(rows[first + i].begin() + first_id_, cols_[rank_],
                    part_.begin() + i * cols_[rank_]);
      }
      const int64_t begin_ns = MonotonicNanos();
      SampleTile(step, first, n, result);
      seconds += static_cast<double>(MonotonicNanos() - begin_ns) * 1e-9;
    }
    for (const auto& sample : result.samples) BH_CHECK(sample.ok());
    return seconds;
  }

 private:
  void SampleTile(const Step& step, int64_t first, int64_t n, StepResult& result) {
    std::vector<int> seqs(n);
    std::vector<int64_t> positions(n, 1000);
    for (int64_t i = 0; i < n; ++i) seqs[i] = static_cast<int>(first + i);
    LogitTile tile{seqs, positions, {}};
    sampler_->Divide(tile);
    const MatrixView part(reinterpret_cast<std::byte*>(part_.data()), DType::kF32, n, cols_[rank_]);
    MatrixView whole = part;
    if (shape_.ranks > 1) {
      whole = MatrixView(reinterpret_cast<std::byte*>(whole_.data()), DType::kF32,
                         tile.RowsOf(rank_), kVocab);
      BH_CHECK((tile.rank_of_row.empty() ? comm_->GatherCols(part, cols_, whole)
                                         : comm_->GatherRows(part, cols_, tile.rank_of_row, whole))
                   .ok());
    }
    BH_CHECK(sampler_->Sample(step, tile, whole, result).ok());
  }

  const int rank_;
  const Shape shape_;
  std::vector<int64_t> cols_;
  int64_t first_id_ = 0;
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> part_;
  std::vector<float> whole_;
  std::vector<std::vector<std::byte>> scratch_;
  std::unique_ptr<HostSampler> sampler_;
};

void Measure(const Shape& shape, int repeats) {
  LogitsParams params;
  params.repetition_penalty = 1.2F;
  params.presence_penalty = 0.5F;
  LogitsProcessor penalties(params);
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < 1000; ++i) prompt.push_back(i * 127);
  penalties.Begin(prompt, std::ssize(prompt), 2000);
  for (const Setting& setting : kSettings) {
    const std::vector<std::vector<float>> rows = MadeRows(setting, shape.rows);
    const Step step = MadeStep(setting, shape.rows, &penalties);
    std::vector<double> wall;
    double cpu = 0;
    std::vector<std::thread> ranks;
    const std::vector<std::unique_ptr<Group>> groups = NewLocalGroups(shape.ranks);
    for (const auto& group : groups) {
      ranks.emplace_back([&, group = group.get()] {
        BenchRank rank(*group, shape);
        rank.Run(rows, step);
        const bool first = group->exchange().topology().rank == 0;
        const double begin = ProcessSeconds();
        for (int i = 0; i < repeats; ++i) {
          const double seconds = rank.Run(rows, step);
          if (first) wall.push_back(seconds);
        }
        if (first) cpu = (ProcessSeconds() - begin) / repeats;
      });
    }
    for (std::thread& rank : ranks) rank.join();
    std::printf("%2d rows, %d x %d, %-38s %8.2f ms a step, %6.0f us a row; CPU %8.2f ms\n",
                shape.rows, shape.ranks, shape.threads, setting.name, Median(wall) * 1e3,
                Median(wall) * 1e6 / shape.rows, cpu * 1e3);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 21;
  if (argc > 4) {
    bulkhead::Measure({std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4])}, repeats);
    return 0;
  }
  for (const int rows : {1, 8, 64}) {
    for (const auto& [ranks, threads] : {std::pair(1, 1), std::pair(1, 2), std::pair(2, 1)})
      bulkhead::Measure({rows, ranks, threads}, repeats);
  }
  return 0;
}
