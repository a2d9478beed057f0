// ServiceCore: the state that the front ends of a server share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "memory/host_memory.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/answer_budget.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/host_counters.h"
#include "runtime/service/host_pressure.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/serving_state.h"
#include "runtime/service/text_worker.h"

namespace bulkhead {

// Every method is thread-safe; the watchdog may call SetLost while other threads hang in a
// collective.
struct ServiceCore {
  explicit ServiceCore(const HostQuotas& host_quotas,
                       std::function<int64_t()> resident_bytes = ResidentBytes,
                       AccessControl access_control = {})
      : quotas(host_quotas),
        access(std::move(access_control)),
        pressure(host_quotas.total_bytes, &host, std::move(resident_bytes)) {}

  // Requests go to parts.inbox from now on. Ignored if draining or lost.
  void SetReady(ServingParts parts);
  // Every open generation ends at once with UNAVAILABLE (RANK_LOST) and `why`'s message. Later
  // output of the engine for them is ignored.
  void SetLost(const absl::Status& why, LostRank lost = {});
  // New requests are refused; gives open calls `grace` to end, ends the rest with UNAVAILABLE
  // (STOPPING). ServingParts is no longer used once the front ends have also shut down.
  void Stop(absl::Duration grace);

  // For a client that sent none. Random, because whoever knows an id may abort its request: no id
  // can be derived from another.
  static std::string NewRequestId();

  // Why a call with a request of that size is not read at all; ok: it is read.
  absl::Status WhyRefused(size_t message_bytes) const;
  // Why any request would be refused at the moment: asked before a text is tokenised or a grammar
  // compiled for one.
  absl::Status WhyFull() const;
  // Counts calls besides those of the front end's connections, for a request that makes several.
  // UNAVAILABLE (TOO_MANY_CALLS) if there would be too many. Give back with host.open_calls.Sub.
  absl::Status TakeCalls(int calls);

  const HostQuotas quotas;
  const AccessControl access;
  ServingState state;
  OpenCalls calls;
  ErrorCounts errors;
  HostCounters host;
  HostPressure pressure;
  AnswerBudget answers{quotas, &host.answer_bytes, &errors};
  TextWorker text_worker{quotas.text_bytes};
};

}  // namespace bulkhead
