// DecodeGraphs: the forward pass of steps in which every sequence has one token, recorded as a CUDA
// graph once for each of a few sizes and then launched whole: a launch costs the host about as much
// as one kernel. Nothing is recorded after start-up.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

class DecodeGraphs {
 public:
  // Enqueues the forward pass of `rows` sequences with one token each. Addresses that it reads and
  // writes are the same in every call.
  using Forward = std::function<absl::Status(int rows)>;

  // `driver` and what `forward` uses outlive the graphs.
  DecodeGraphs(CudaDriver& driver, Forward forward)
      : driver_(driver), forward_(std::move(forward)) {}
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;
  ~DecodeGraphs();

  // Collective. Records the pass of `rows` rows, which must have run before: whatever a first run
  // loads or connects already exists.
  absl::Status Record(int rows);
  // Collective. Records every size again, since addresses have changed. Runs nothing.
  absl::Status RecordAgain();
  // Enqueues the pass of `rows` rows; false if none was recorded.
  bool Launch(int rows);

 private:
  void Free();

  CudaDriver& driver_;
  const Forward forward_;
  std::map<int, CudaGraph> graphs_;  // by rows
};

}  // namespace bulkhead
