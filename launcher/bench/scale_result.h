// What `bench scale` found: the planned and the measured half of each group size, side by side.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// What holds the group's KV cache down, planned or measured.
struct ScaleCapacity {
  bool fits = false;
  int64_t kv_tokens = 0;
  int binding_rank = 0;
  std::string binding_term;
};

struct ScaleRates {
  int batch_size = 0;
  int input_len = 0;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // 0: every sequence had one token
};

struct ScaleMeasured {
  int threads = 1;                 // of each rank
  std::vector<std::string> hosts;  // by rank
  std::vector<ScaleRates> cases;
  ScaleCapacity capacity;
  // Of the time in steps.
  double decode_comm_share = 0;
  double prefill_comm_share = 0;
  // The rank that computes longest in decode, and by how much more than the mean.
  int slowest_rank = 0;
  double slowest_excess = 0;
};

struct ScaleRow {
  int ranks = 0;
  ScaleCapacity planned;
  std::optional<ScaleMeasured> measured;  // absent when the plan does not fit
};

// From what `plan --json` and `bench throughput --json` print. DATA_LOSS when that is something
// else.
absl::StatusOr<ScaleCapacity> ParsePlanned(absl::string_view json);
absl::StatusOr<ScaleMeasured> ParseMeasured(absl::string_view json);

// Speed over the first measured row's, and that over the growth in threads of all ranks.
// Cases are equal in all rows.
std::string ScaleTable(const std::vector<ScaleRow>& rows);
std::string ScaleJson(const std::vector<ScaleRow>& rows, const std::string& model,
                      const std::string& version, const std::string& date);

}  // namespace bulkhead
