#include "runtime/model/decode_graphs.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

DecodeGraphs::~DecodeGraphs() {
  driver_.Synchronize().IgnoreError();  // a lost device was reported before
  Free();
}

absl::Status DecodeGraphs::RecordAgain() {
  BH_RETURN_IF_ERROR(driver_.Synchronize());
  const std::map<int, CudaGraph> old = graphs_;
  Free();  // first, so that the new graphs can use its memory
  for (const auto& [rows, graph] : old) BH_RETURN_IF_ERROR(Record(rows));
  return driver_.Synchronize();
}

absl::Status DecodeGraphs::Record(int rows) {
  driver_.BeginCapture();
  const absl::Status enqueued = forward_(rows);
  const absl::StatusOr<CudaGraph> graph = driver_.EndCapture();
  BH_RETURN_IF_ERROR(enqueued);
  BH_RETURN_IF_ERROR(graph.status());
  graphs_[rows] = *graph;
  return absl::OkStatus();
}

bool DecodeGraphs::Launch(int rows) {
  const auto found = graphs_.find(rows);
  if (found == graphs_.end()) return false;
  driver_.LaunchGraph(found->second);
  return true;
}

void DecodeGraphs::Free() {
  for (const auto& [rows, graph] : std::exchange(graphs_, {})) driver_.FreeGraph(graph);
}

}  // namespace bulkhead
