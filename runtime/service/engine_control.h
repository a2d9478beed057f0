// What the service needs from the engine besides RequestInbox: metrics, live limits and draining.
// Implemented where the program is wired together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/engine/scheduler_limits.h"

namespace bulkhead {

// One rank's time per step since READY, reported with a delay of some steps.
struct RankStepTimes {
  int64_t decode_steps = 0;  // with one token per sequence
  double decode_compute_s = 0;
  double decode_comm_s = 0;  // in collectives, including waiting for other ranks
  int64_t prefill_steps = 0;
  double prefill_compute_s = 0;
  double prefill_comm_s = 0;
};

// A GPU's memory, as in LoadInfo.
struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t free_bytes_at_ready = 0;
  int64_t free_bytes_least = 0;
};

struct LoadSnapshot {
  int num_requests_running = 0;
  int num_requests_waiting = 0;
  int64_t num_kv_blocks = 0;
  int64_t num_kv_blocks_used = 0;
  int64_t num_waiting_tokens = 0;
  uint64_t prompt_tokens_total = 0;
  uint64_t generation_tokens_total = 0;
  uint64_t num_preemptions_total = 0;
  uint64_t device_allocations_after_ready = 0;
  int64_t num_kv_blocks_cached = 0;         // idle and cached
  uint64_t prefix_cache_queries_total = 0;  // tokens
  uint64_t prefix_cache_hits_total = 0;
  // Since READY.
  int64_t uptime_s = 0;
  int num_requests_running_peak = 0;
  int num_requests_waiting_peak = 0;
  int64_t num_kv_blocks_used_peak = 0;
  uint64_t num_steps_short_of_blocks = 0;
  uint64_t num_steps_short_of_slots = 0;
  std::array<uint64_t, 32> num_requests_by_log2_tokens = {};
  int64_t longest_request_tokens = 0;
  int64_t resident_bytes = 0;
  int64_t cgroup_used_bytes = 0;  // of the cgroup with the least left
  int64_t cgroup_limit_bytes = 0;
  int64_t device_free_bytes = 0;  // GPU only; 0 on a CPU
  int64_t device_free_bytes_at_ready = 0;
  int64_t device_free_bytes_least = 0;
  std::vector<RankStepTimes> rank_steps = {};  // by rank
  std::vector<DeviceMemory> devices = {};      // by rank; empty on CPUs
};

// Thread-safe; no call waits for a step.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  virtual LoadSnapshot Load() = 0;
  virtual LiveLimits Limits() = 0;
  // INVALID_ARGUMENT above the sealed limits. `before` receives the previous limits.
  virtual absl::StatusOr<LiveLimits> SetLimits(const LiveLimitsChange& change,
                                               LiveLimits* before) = 0;
  // Refuses new requests, finishes running ones (within `timeout`; nullopt: the server's default),
  // then ends the group with exit code 0. May be called again: the shorter timeout applies.
  virtual void BeginDrain(std::optional<absl::Duration> timeout) = 0;
};

}  // namespace bulkhead
