// DeviceSampler: samples the tokens of one rank's steps on the device: each rank selects the most
// likely ids of its columns, rank 0's device samples from all of them or from whole rows, and the
// ids stay on every rank's device, by slot, for later steps. The host gets four bytes per row.
//
// A step makes the calls in the order below. Only Collect requires that the device has completed
// them, so two steps may be in flight. All calls are collective, except those marked rank 0.
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
  // All arguments outlive it. `first_id`: first id of this rank's columns. Takes pinned host memory
  // on rank 0; if there is none, the first Upload returns the error.
  DeviceSampler(const SamplingBuffers& buffers, int64_t first_id, const ModelLimits& limits,
                Device& device, Backend& backend, Communicator& comm);

  // Bytes of that pinned memory.
  static int64_t HostBytes(const ModelLimits& limits);

  // Rank 0: enqueues the copy of the step's sampling parameters to the device; of `rows`, those
  // after the step's are padding.
  absl::Status Upload(const Step& step, int64_t rows);
  // Replaces token ids that the plan did not know by the ids on the device.
  void FillIn(const StepIndex& index, int32_t* token_ids);
  // Called before Select, for rows that are sampled whole: samples the next ones, at most
  // WholeRowsAtOnce, on rank 0 and overwrites `logits`.
  void SampleWhole(MatrixView logits);
  // Selects candidates of the next rows, in plan order, from this rank's columns of their logits;
  // at most SampledAtOnce rows before Sample.
  void Select(ConstMatrixView logits);
  int64_t room() const { return buffers_.lists.rows() - selected_; }
  // Samples the rows selected since the last call.
  absl::Status Sample();
  // After all rows of a step: sends the ids to every rank's device and enqueues their copy to rank
  // 0's host.
  absl::Status Finish();
  // Rank 0: writes the tokens of the oldest uncollected step to result.samples, which is parallel
  // to step.samples.
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
  std::vector<int64_t> cols_of_rank_;  // [size] columns per rank, to gather lists
  absl::StatusOr<HostBuffer> memory_;  // holds staging_
  std::array<Staging, kStagings> staging_;
  uint64_t uploads_ = 0;
  uint64_t collects_ = 0;
  int64_t selected_ = 0;  // rows since the last Sample
  int64_t sampled_ = 0;   // rows of the step so far
};

}  // namespace bulkhead
