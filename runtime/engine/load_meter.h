// LoadMeter: one log line every few seconds of load, from the scheduler's totals. Pure: the time is
// an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/engine/scheduler.h"

namespace bulkhead {

class LoadMeter {
 public:
  LoadMeter(uint64_t period_ns, int64_t num_kv_blocks)
      : period_ns_(period_ns), num_kv_blocks_(num_kv_blocks) {}

  // Work starts after idleness (or continues): idle time is not counted.
  void Busy(uint64_t now_ns, const SchedulerLoad& load);
  // No work for now.
  void Idle() { begin_ns_.reset(); }
  // After a step: a line if a period of work has passed.
  std::optional<std::string> Line(uint64_t now_ns, const SchedulerLoad& load);

 private:
  uint64_t period_ns_;
  int64_t num_kv_blocks_;
  std::optional<uint64_t> begin_ns_;
  uint64_t prompt_tokens_ = 0;
  uint64_t generation_tokens_ = 0;
  uint64_t prefix_queries_ = 0;
  uint64_t prefix_hits_ = 0;
};

}  // namespace bulkhead
