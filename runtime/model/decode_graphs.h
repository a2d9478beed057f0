// DecodeGraphs: the forward pass of steps in which every sequence has one token, recorded once for
// each of a few sizes and launched as a whole from then on: a launch costs the host about as much
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
  // Enqueues the forward pass of `rows` sequences with one token each. What it reads and writes
  // keeps its addresses from call to call.
  using Forward = std::function<absl::Status(int rows)>;

  // `driver` outlives the graphs, and so does what `forward` uses.
  DecodeGraphs(CudaDriver& driver, Forward forward)
      : driver_(driver), forward_(std::move(forward)) {}
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;
  ~DecodeGraphs();

  // Collective. Records the pass of `rows` rows, which has run before: whatever a first run loads
  // or connects is there.
  absl::Status Record(int rows);
  // Collective. Records every size again, since addresses have changed. Runs nothing.
  absl::Status RecordAgain();
  // Enqueues the pass of `rows` rows; false where none was recorded.
  bool Launch(int rows);

 private:
  void Free();

  CudaDriver& driver_;
  const Forward forward_;
  std::map<int, CudaGraph> graphs_;  // by rows
};

}  // namespace bulkhead
