#include "runtime/model/host_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "runtime/engine/shared_samples.h"

namespace bulkhead {
namespace {

// Shorter rows are not worth waking threads.
constexpr int64_t kColumnsWorthSharing = 32768;

using Samples = absl::Span<const SampleRow>;

// The index of the sample of a row of logits, or the number of samples.
size_t FindSample(Samples samples, int seq, int64_t position) {
  const std::pair<int, int64_t> place(seq, position + 1);
  const auto found = std::lower_bound(
      samples.begin(), samples.end(), place,
      [](const SampleRow& a, const auto& b) { return std::pair(a.seq_index, a.position) < b; });
  const bool same = found != samples.end() && std::pair(found->seq_index, found->position) == place;
  return same ? found - samples.begin() : samples.size();
}

// Whether it follows a draft token that is checked by the same sequence's previous sample.
bool FollowsSample(Samples samples, size_t sample) {
  return sample > 0 && !samples[sample].drafted.empty() &&
         samples[sample - 1].seq_index == samples[sample].seq_index;
}

}  // namespace

HostSampler::HostSampler(int64_t vocab_size, absl::Span<std::byte* const> scratch,
                         int64_t shared_rows, Backend& backend, Communicator& comm)
    : vocab_size_(vocab_size), shared_rows_(shared_rows), backend_(backend), comm_(comm) {
  for (std::byte* const memory : scratch) samplers_.emplace_back(vocab_size, memory);
}

absl::Status HostSampler::Begin(const internal::StepPlan& plan) {
  if (shared_rows_ == 0) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(shared_, SharedSamplesOf(plan));
  draft_ids_.assign(shared_.size(), -1);
  results_.assign(shared_.size(), GeneratedToken());
  int64_t first_token = 0;  // of the sequence, in the step
  int seq = 0;
  for (size_t i = 1; i < shared_.size(); ++i) {
    SampleRow& row = shared_[i];
    for (; seq < row.seq_index; ++seq) first_token += plan.num_tokens(seq);
    if (std::pair(shared_[i - 1].seq_index, shared_[i - 1].position + 1) !=
        std::pair(row.seq_index, row.position)) {
      continue;
    }
    const int64_t first = plan.start_position(seq) + plan.tokens_ahead();
    draft_ids_[i] = plan.token_ids(static_cast<int>(first_token + row.position - 1 - first));
    row.drafted = absl::MakeConstSpan(&draft_ids_[i], 1);
    results_[i - 1]->id = draft_ids_[i];
  }
  return absl::OkStatus();
}

void HostSampler::Divide(LogitTile& tile) {
  tile.rank_of_row = {};
  if (shared_rows_ == 0 || shared_.empty()) return;
  group_of_row_.clear();
  for (int64_t i = 0; i < tile.rows(); ++i) {
    const bool shared = FindSample(shared_, tile.seqs[i], tile.positions[i]) < shared_.size();
    group_of_row_.push_back(shared ? tile.seqs[i] : -1);
  }
  DivideRows(group_of_row_, comm_.size(), shared_rows_, rank_of_row_);
  const bool all_to_rank0 =
      std::all_of(rank_of_row_.begin(), rank_of_row_.end(), [](int rank) { return rank == 0; });
  if (!all_to_rank0) tile.rank_of_row = rank_of_row_;
}

absl::Status HostSampler::Sample(const Step& step, const LogitTile& tile, MatrixView logits,
                                 StepResult& result) {
  const bool first = comm_.rank() == 0;
  const Samples samples = first ? Samples(step.samples) : Samples(shared_);
  rows_.clear();
  int64_t own = 0;
  for (int64_t i = 0; i < tile.rows(); ++i) {
    if (tile.RankOf(i) != comm_.rank()) continue;
    float* const row = logits.F32(own++);
    const size_t sample = FindSample(samples, tile.seqs[i], tile.positions[i]);
    if (sample < samples.size()) rows_.push_back({row, sample});
  }
  if (!rows_.empty()) SampleRows(samples, absl::MakeSpan(first ? result.samples : results_));
  return tile.rank_of_row.empty() ? absl::OkStatus() : Return(step, tile, result);
}

bool HostSampler::FollowsRow(Samples samples, size_t row) const {
  return row > 0 && FollowsSample(samples, rows_[row].sample) &&
         rows_[row - 1].sample + 1 == rows_[row].sample;
}

void HostSampler::SampleOne(Samples samples, Results results, const Row& row, Sampler& sampler,
                            const RowThreads& threads) const {
  const SampleRow& how = samples[row.sample];
  if (FollowsSample(samples, row.sample)) {  // after a wrong draft token, or nothing sampled?
    const absl::StatusOr<GeneratedToken>& before = results[row.sample - 1];
    if (!before.ok() || before->id != how.drafted.back()) {
      results[row.sample] = absl::InternalError("behind a wrong draft token");
      return;
    }
  }
  results[row.sample] =
      sampler.Sample(absl::MakeSpan(row.logits, static_cast<size_t>(vocab_size_)), how, threads);
}

// Each row on one thread, or on all threads if there are fewer rows than threads.
void HostSampler::SampleRows(Samples samples, Results results) {
  const int64_t begin_ns = MonotonicNanos();
  const int threads = backend_.host_threads();
  if (std::ssize(rows_) < threads && vocab_size_ >= kColumnsWorthSharing) {
    const DefaultFloatMode mode;
    const auto run = [&](int parts, absl::FunctionRef<void(int part)> body) {
      backend_.OnHostThreads(parts, body);
    };
    for (const Row& row : rows_) SampleOne(samples, results, row, samplers_[0], {threads, run});
  } else {
    const size_t parts = std::min(samplers_.size(), rows_.size());
    const auto part_begin = [&](size_t part) {
      size_t begin = part * rows_.size() / parts;
      while (begin < rows_.size() && FollowsRow(samples, begin)) ++begin;
      return begin;
    };
    backend_.OnHostThreads(static_cast<int>(parts), [&](int part) {
      for (size_t i = part_begin(part); i < part_begin(part + 1); ++i) {
        SampleOne(samples, results, rows_[i], samplers_[part], OneThread());
      }
    });
  }
  sampling_ns_ += static_cast<uint64_t>(MonotonicNanos() - begin_ns);
}

// The samples of the other ranks.
absl::Status HostSampler::Return(const Step& step, const LogitTile& tile, StepResult& result) {
  const int64_t floats = SampleFloats(shared_);
  floats_of_rank_.assign(comm_.size(), 0);
  for (const int rank : tile.rank_of_row) floats_of_rank_[rank] += rank == 0 ? 0 : floats;
  const auto view = [](std::vector<float>& numbers) {
    return MatrixView(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, 1,
                      static_cast<int64_t>(numbers.size()));
  };
  packed_.assign(floats_of_rank_[comm_.rank()], 0);
  if (comm_.rank() != 0) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const size_t sample = rows_[i].sample;
      PackSample(results_[sample], shared_[sample],
                 absl::MakeSpan(packed_).subspan(i * floats, floats));
    }
    return comm_.GatherCols(view(packed_), floats_of_rank_, {});
  }
  gathered_.resize(std::accumulate(floats_of_rank_.begin(), floats_of_rank_.end(), int64_t{0}));
  BH_RETURN_IF_ERROR(comm_.GatherCols(view(packed_), floats_of_rank_, view(gathered_)));
  size_t at = 0;
  for (int rank = 1; rank < comm_.size(); ++rank) {
    for (int64_t i = 0; i < tile.rows(); ++i) {
      if (tile.rank_of_row[i] != rank) continue;
      const size_t sample = FindSample(step.samples, tile.seqs[i], tile.positions[i]);
      BH_CHECK(sample < step.samples.size());
      result.samples[sample] =
          UnpackSample(absl::MakeConstSpan(gathered_).subspan(at, floats), step.samples[sample]);
      at += floats;
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
