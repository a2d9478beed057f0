// What the service needs of the engine besides RequestInbox: numbers to report, and the way into a
// drain. Implemented where the program is wired together.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace bulkhead {

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
  int64_t num_kv_blocks_cached = 0;         // idle: not used
  uint64_t prefix_cache_queries_total = 0;  // tokens
  uint64_t prefix_cache_hits_total = 0;
};

// Thread-safe; neither call waits for a step.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  virtual LoadSnapshot Load() = 0;
  // Refuses new requests, finishes what runs (at most for `timeout`; nullopt: the server's
  // default), then ends the group with exit code 0. May be called again: the shorter time counts.
  virtual void BeginDrain(std::optional<absl::Duration> timeout) = 0;
};

}  // namespace bulkhead
