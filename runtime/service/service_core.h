// What the services of one server share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/heap_trimmer.h"
#include "runtime/service/host_counters.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/serving_state.h"
#include "runtime/service/text_worker.h"

namespace bulkhead {

struct ServiceCore {
  explicit ServiceCore(std::string epoch) : state(std::move(epoch)) {}

  // For a client that sent none.
  std::string NextRequestId() { return absl::StrCat(state.epoch(), "-", ++last_request_number); }

  ServingState state;
  OpenCalls calls;
  ErrorCounts errors;
  HostCounters host;
  std::atomic<uint64_t> last_request_number{0};
  TextWorker text_worker;
  HeapTrimmer heap_trimmer;
};

}  // namespace bulkhead
