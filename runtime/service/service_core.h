// Shared by the services of a server.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/service/answer_budget.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/heap_trimmer.h"
#include "runtime/service/host_counters.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/serving_state.h"
#include "runtime/service/text_worker.h"

namespace bulkhead {

struct ServiceCore {
  ServiceCore(std::string epoch, const HostQuotas& host_quotas)
      : quotas(host_quotas), state(std::move(epoch)) {}

  // For a client that sent none.
  std::string NextRequestId() { return absl::StrCat(state.epoch(), "-", ++last_request_number); }

  // Why a call with a request of that size is not read at all; ok: it is.
  absl::Status WhyRefused(size_t message_bytes) const;

  const HostQuotas quotas;
  ServingState state;
  OpenCalls calls;
  ErrorCounts errors;
  HostCounters host;
  AnswerBudget answers{quotas, &host.answer_bytes, &errors};
  std::atomic<uint64_t> last_request_number{0};
  TextWorker text_worker{quotas.text_bytes};
  HeapTrimmer heap_trimmer;
};

}  // namespace bulkhead
