// What each rank measured of itself while a batch ran: where its time went, and how fast it loaded.
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// The steps of one kind on one rank.
struct StepTotals {
  int64_t steps = 0;
  double step_s = 0;
  double comm_s = 0;  // of it in sums and gathers: waiting for other ranks, too
  double longest_s = 0;

  void Add(double step_seconds, double comm_seconds);
  double compute_s() const { return step_s - comm_s; }
};

struct RankFigures {
  std::string host;
  StepTotals decode;   // steps in which every sequence has one token
  StepTotals prefill;  // all others
  double load_s = 0;   // reading and packing the weights
  int64_t load_bytes = 0;
  int64_t resident_bytes_peak = 0;
  // Its clock less rank 0's when the group started, true within +- the error.
  double clock_offset_us = 0;
  double clock_error_us = 0;

  std::string Serialize() const;
  static absl::StatusOr<RankFigures> Parse(absl::string_view text);
};

}  // namespace bulkhead
