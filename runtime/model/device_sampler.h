// DeviceSampler: the tokens of one rank's steps, sampled where the logits are: each rank selects
// the likeliest ids of its columns, rank 0's device samples from all of them, or from whole rows,
// and the ids stay on every rank's device, by slot, for the steps to come. The host gets four bytes
// a row.
//
// A step makes the calls in the order below. Only Collect needs the device to have come past them,
// so that two steps may be in flight. Everything is collective; rank 0 alone has what is said to be
// its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "kernels/sample/op.h"
#include "memory/device.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

class DeviceSampler {
 public:
  // What is passed in outlives it. `first_id`: of this rank's columns. Takes pinned host memory on
  // rank 0; where there is none, the first Upload says so.
  DeviceSampler(const SamplingBuffers& buffers, int64_t first_id, const ModelLimits& limits,
                Device& device, Backend& backend, Communicator& comm);

  // Bytes of that memory.
  static int64_t HostBytes(const ModelLimits& limits);

  // Rank 0: how the step's rows are sampled, on its way to the device; of `rows`, those after the
  // step's are padding.
  absl::Status Upload(const Step& step, int64_t rows);
  // Puts ids that are on the device into the step's tokens where the plan did not know them.
  void FillIn(const StepIndex& index, int32_t* token_ids);
  // Before the others, of rows that are sampled whole: the next ones, on rank 0, whose logits are
  // changed; at most WholeRowsAtOnce.
  void SampleWhole(MatrixView logits);
  // Of at most SampledAtOnce rows, until all of them are sampled: logits of the next ones, this
  // rank's columns; rows in the order of the plan.
  void Select(ConstMatrixView logits);
  int64_t room() const { return buffers_.lists.rows() - selected_; }
  // Samples what was selected since the last call.
  absl::Status Sample();
  // Behind all rows of a step: the ids to every rank's device, and on their way to rank 0's host.
  absl::Status Finish();
  // Rank 0: the tokens of the oldest step that was not collected, into result.samples, which has
  // one for each of step.samples.
  void Collect(const Step& step, StepResult& result);

 private:
  // Pinned memory of a step in flight; there may be two.
  static constexpr size_t kStagings = 2;
  struct Staging {
    TokenSampling* params = nullptr;
    int32_t* banned = nullptr;
    int32_t* sampled = nullptr;
    int64_t rows = 0;
    bool cuts = false;  // whether a row that is sampled whole has a top_p
  };
  const Staging& newest() const { return staging_[(uploads_ - 1) % staging_.size()]; }
  static Staging LayOut(const ModelLimits& limits, BumpAllocator& allocator);

  const SamplingBuffers buffers_;
  const int64_t first_id_;
  const int64_t max_num_seqs_;
  const int64_t max_rows_;
  Device& device_;
  Backend& backend_;
  Communicator& comm_;
  std::vector<int64_t> cols_of_rank_;  // [size] of a gather of lists
  absl::StatusOr<HostBuffer> memory_;  // what staging_ lies in
  std::array<Staging, kStagings> staging_;
  uint64_t uploads_ = 0;
  uint64_t collects_ = 0;
  int64_t selected_ = 0;  // rows, since the last Sample
  int64_t sampled_ = 0;   // rows of the step
};

}  // namespace bulkhead
