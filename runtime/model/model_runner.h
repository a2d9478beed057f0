// ModelRunner: one rank's model in its sealed arenas, running step plans. Built once at start;
// after that nothing is allocated on the device.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "runtime/engine/candidates.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/decode_graphs.h"
#include "runtime/model/decoder.h"
#include "runtime/model/device_sampler.h"
#include "runtime/model/footprint.h"
#include "runtime/model/host_sampler.h"

namespace bulkhead {

// The memory for the layouts of footprint.h; every buffer was taken from the ledger.
struct ModelArenas {
  Buffer weights;
  Buffer activations;
  Buffer block_tables;
  Buffer logits;
  Buffer state;      // the slots' recurrent states
  Buffer workspace;  // rope table, scratch
  Buffer kv;         // block 0 and the usable blocks
};

// Claims every arena of this rank.
void ClaimArenas(const RankNeeds& needs, int64_t num_kv_blocks, MemoryLedger& ledger);
// Takes what ClaimArenas claimed, the KV pool last, except communication, which the group takes.
// RESOURCE_EXHAUSTED names the term.
absl::StatusOr<ModelArenas> TakeArenas(const RankNeeds& needs, int64_t num_kv_blocks,
                                       MemoryLedger& ledger);
// TakeArenas for a model and its draft model, which has one ledger category for all but KV. The
// draft model's KV pool follows the model's.
struct ArenasOfBoth {
  ModelArenas model;
  ModelArenas draft;
};
absl::StatusOr<ArenasOfBoth> TakeArenas(const RankNeeds& needs, const RankNeeds& draft_needs,
                                        int64_t num_kv_blocks, MemoryLedger& ledger);

class ModelRunner final : public StepRunner {
 public:
  // `plan`, `backend` and `comm` outlive the runner. Fills the rope table; weights are loaded into
  // weights() afterwards.
  ModelRunner(const ShardPlan& plan, int rank, const ModelLimits& limits, ModelArenas arenas,
              Backend& backend, Communicator& comm);

  const ModelWeights& weights() const { return weights_; }
  // The residual stream of a step's `rows` tokens, [T, D] in device memory: a stage after the first
  // reads its input there when a step is submitted, and its output is there until the next step.
  MatrixView hidden(int64_t rows) { return decoder_->Hidden(rows); }
  // The cache's layout in memory (memory/kv_block_copy.h): blocks that no step in flight writes may
  // be read, and blocks that no step uses may be written.
  KvArena kv() const { return KvArenaOf(plan_, rank_, limits_, arenas_.kv.data() + kv_offset_); }
  // Grows the pool to `num_kv_blocks`, claiming and taking the difference from `ledger`. The
  // cache's contents are lost. Collective if decoding has been recorded. RESOURCE_EXHAUSTED if the
  // device lacks memory. `draft`: the draft model's runner, whose pool follows this one; it moves
  // and grows to the same size.
  absl::Status GrowKv(int64_t num_kv_blocks, MemoryLedger& ledger, ModelRunner* draft = nullptr);
  // Once, after weights are loaded and before the first step: loads what products need at first
  // use.
  absl::Status WarmUpProducts() { return decoder_->WarmUpProducts(logits_.selected, logits_.part); }
  // Whether steps of one token for each sequence may be launched as graphs: their plans are then
  // padded to PaddedDecodeRows.
  bool has_decode_graphs() const { return graphs_ != nullptr; }
  // Collective, once, after weights are loaded and before the seal. On a CUDA device runs a decode
  // step of every padded size and records it if possible: nothing is loaded or recorded later.
  // Writes only to KV block 0.
  absl::Status WarmUpDecodes();
  // With another runner on the same backend: call UseWorkspace before a step of this one that
  // follows one of the other's or the start; ApplyTables applies the table changes of the other's
  // plans to KV group 0.
  void UseWorkspace();
  void ApplyTables(const internal::StepPlan& plan);
  // Whether it is an MTP layer, whose steps need SetMtpHidden before them, except in the warm-up.
  bool is_mtp() const { return plan_.config().mtp_layer > 0; }
  // Sets the hidden states preceding the next step's tokens: `rows` of the last step of `from`,
  // which is this runner, or the model's, then after its final norm. No step may be in flight.
  absl::Status SetMtpHidden(const ModelRunner& from, absl::Span<const int32_t> rows);
  // Whether the plan is within this rank's limits: INTERNAL with exit code 70 if not.
  absl::Status Check(const internal::StepPlan& plan) const;
  // 2 if the device samples tokens and no sum waits on the host.
  int depth() const override { return copied_.has_value() ? 2 : 1; }
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override;
  // Whether every rank samples rows, if the plan says so (runtime/engine/shared_samples.h).
  bool shares_samples() const { return SharesSamples(plan_, backend_); }
  // Time spent in the samplers of this rank's host since the start.
  uint64_t sampling_ns() const { return host_sampler_->sampling_ns(); }

 private:
  absl::Status UseGrownKv(int64_t num_kv_blocks);
  absl::Status CheckSnapshots(const internal::StepPlan& plan) const;
  absl::Status Overstep(const internal::StepPlan& plan, const char* what, int64_t value,
                        int64_t limit) const;
  absl::Status CheckGivenRows(const Step& step) const;
  void FillPositionTables(const PositionTables& tables);
  void CopyTable(MatrixView table, const std::function<void(int64_t first, MatrixView rows)>& fill);
  // Applies the plan's table changes and writes the step's indices to the host's step arrays;
  // CopyArrays enqueues their copy to the device. They must not change until it has completed.
  StepIndex Prepare(const internal::StepPlan& plan);
  StepIndex HostIndexOf(StepIndex index) const;
  void CopyArrays(const StepIndex& index);
  int CopyTables();
  void SendIndices(const int32_t* host, int32_t* device, int64_t count);
  StepIndex IndexOf(int num_seqs, int num_tokens) const;
  // Pads to `rows` sequences with one-token sequences; returns the index of all.
  StepIndex Pad(int num_seqs, int num_tokens, int rows);
  // The last layer's output [T, D].
  absl::StatusOr<ConstMatrixView> Forward(const StepIndex& index, const Step& step);
  // Lists the rows of the step whose logits are wanted: first rows for the host, then rows that the
  // device samples whole, then from candidates; each in the order of the plan.
  void ListLogitRows(const internal::StepPlan& plan);
  SampleSource SourceOf(const internal::StepPlan& plan, int seq_index) const {
    return device_sampler_.has_value() ? SampleSourceOf(plan, seq_index) : SampleSource::kHost;
  }
  absl::Status RunLogits(const Step& step, ConstMatrixView hidden, StepResult& result);
  // Hands out the hidden states of a tile's rows left by Decoder::Logits.
  absl::Status TakeHiddenStates(const Step& step, int64_t first_row, ConstMatrixView normed,
                                StepResult& result);
  // Gathers the columns of a tile's rows where they are sampled, and hands the rows out.
  absl::Status GatherTile(const Step& step, int64_t first_row, MatrixView part, StepResult& result);
  // Gathers them on rank 0's device, which samples them.
  absl::Status SampleWholeRows(MatrixView part);
  // `logits` in memory that the CPU can read.
  absl::StatusOr<MatrixView> OnHost(MatrixView logits);
  // Hands rank 0's rows of one tile to the sinks of prompt logits.
  void HandOut(const Step& step, const LogitTile& tile, ConstMatrixView logits, StepResult& result);

  const ShardPlan& plan_;
  const int rank_;
  ModelLimits limits_;
  ModelArenas arenas_;
  int64_t kv_offset_ = 0;  // bytes from the arena's begin to the pool
  Backend& backend_;
  Communicator& comm_;
  ModelWeights weights_;
  std::byte* scratch_ = nullptr;  // in the workspace
  StepLimits step_limits_;
  StateArena state_;
  StepArrays arrays_;                      // on the device
  absl::StatusOr<HostBuffer> host_steps_;  // holds host_arrays_; none on a CPU
  StepArrays host_arrays_;  // next contents of arrays_, which copies read; on a CPU arrays_
  struct TableRange {
    int begin = 0;
    int end = 0;
  };
  std::vector<TableRange> table_ranges_;  // [groups x table_rows] changed by this step
  std::vector<int> changed_tables_;       // indices of nonempty ranges
  LogitBuffers logits_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<int64_t> vocab_cols_;  // [size]
  std::vector<int> logit_seq_;       // [logit rows of the step] sequence index
  // Of the logit rows: the host's, which are first, and then those that the device samples whole.
  int64_t num_host_rows_ = 0;
  int64_t num_whole_rows_ = 0;
  std::optional<HostSampler> host_sampler_;
  std::optional<DeviceSampler> device_sampler_;  // if the device can sample
  struct InFlight {
    Step step;
    StepResult result;
  };
  std::deque<InFlight> in_flight_;  // the oldest first
  // Events in the queue, if two steps may be in flight.
  std::optional<CudaEvent> copied_;   // after the newest step's copies from the host
  std::array<CudaEvent, 2> ended_{};  // after each step, by number
  uint64_t submits_ = 0;
  uint64_t collects_ = 0;
  // Rank 0, if the CPU cannot read the device's memory.
  absl::StatusOr<HostBuffer> host_logits_;
  std::vector<std::byte> host_scratch_;  // for host_sampler_
  std::vector<int64_t> logit_position_;  // [logit rows of the step] absolute, of the row's token
  std::unique_ptr<DecodeGraphs> graphs_;
};

}  // namespace bulkhead
