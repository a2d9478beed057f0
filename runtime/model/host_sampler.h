// HostSampler: samples tokens of one rank's steps from whole rows of logits on CPUs. In a group of
// several ranks each samples some of a tile's rows, as the plan says (shared_samples.h), and rank 0
// gets the tokens. Collective; on the rank's main thread and the threads of its backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "memory/matrix.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Rows of logits of a step, in order of sequence and position.
struct LogitTile {
  absl::Span<const int> seqs;           // indices in the plan
  absl::Span<const int64_t> positions;  // of the rows' tokens
  absl::Span<const int> rank_of_row;    // which rank samples; empty: rank 0 all rows

  int64_t rows() const { return static_cast<int64_t>(seqs.size()); }
  int RankOf(int64_t row) const { return rank_of_row.empty() ? 0 : rank_of_row[row]; }
  int64_t RowsOf(int rank) const {
    if (rank_of_row.empty()) return rank == 0 ? rows() : 0;
    return std::count(rank_of_row.begin(), rank_of_row.end(), rank);
  }
};

class HostSampler {
 public:
  // `scratch`: one Sampler's per row that may be sampled at once; empty if this rank never samples.
  // `shared_rows`: maximum rows of a tile for a rank other than 0; 0 if only rank 0 samples.
  HostSampler(int64_t vocab_size, absl::Span<std::byte* const> scratch, int64_t shared_rows,
              Backend& backend, Communicator& comm);

  // Once per step, before its tiles. INTERNAL: the plan's samples do not match its rows.
  absl::Status Begin(const internal::StepPlan& plan);
  // Fills in rank_of_row, valid until the next call.
  void Divide(LogitTile& tile);
  // Samples this rank's rows of the tile from `logits` [its rows, V], which are modified, and
  // gathers all samples of the tile in `result` on rank 0.
  absl::Status Sample(const Step& step, const LogitTile& tile, MatrixView logits,
                      StepResult& result);
  // Time spent in the samplers since the start.
  uint64_t sampling_ns() const { return sampling_ns_; }

 private:
  struct Row {
    float* logits = nullptr;  // [V]
    size_t sample = 0;        // index in the step's samples
  };
  using Samples = absl::Span<const SampleRow>;
  using Results = absl::Span<absl::StatusOr<GeneratedToken>>;

  // Rows of a sequence after draft tokens wait for the sample before theirs.
  bool FollowsRow(Samples samples, size_t row) const;
  void SampleOne(Samples samples, Results results, const Row& row, Sampler& sampler,
                 const RowThreads& threads) const;
  void SampleRows(Samples samples, Results results);
  absl::Status Return(const Step& step, const LogitTile& tile, StepResult& result);

  const int64_t vocab_size_;
  const int64_t shared_rows_;
  Backend& backend_;
  Communicator& comm_;
  std::vector<Sampler> samplers_;
  std::vector<SampleRow> shared_;   // the step's
  std::vector<TokenId> draft_ids_;  // [shared]; `drafted` of shared_ points here
  // [shared] on a rank but 0. Of a row that is sampled elsewhere: what the next one's draft token
  // is.
  std::vector<absl::StatusOr<GeneratedToken>> results_;
  std::vector<int> group_of_row_;
  std::vector<int> rank_of_row_;
  std::vector<Row> rows_;  // this rank's rows of the tile
  std::vector<int64_t> floats_of_rank_;
  std::vector<float> packed_;    // this rank's
  std::vector<float> gathered_;  // rank 0
  uint64_t sampling_ns_ = 0;
};

}  // namespace bulkhead
