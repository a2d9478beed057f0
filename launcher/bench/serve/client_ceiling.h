// How much this client can send and receive at all, and whether a result was limited by it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/bench/serve/request_record.h"
#include "launcher/bench/serve/summary.h"

namespace bulkhead {

// Against a null server in this process, which takes its own part of the machine: a lower bound.
struct ClientCeiling {
  double requests_per_s = 0;  // of one token each
  double tokens_per_s = 0;    // one message each
};
absl::StatusOr<ClientCeiling> MeasureCeiling(int threads);

// How much later than possible requests were sent.
struct SendLag {
  double median_ms = 0;
  double p99_ms = 0;  // of however many there are: it warns, it is no result
  double max_ms = 0;
};

struct ClientFacts {
  int threads = 0;
  double busiest_thread_share = 0;  // CPU time over wall time, the worst of the runs
  SendLag lag;
  std::optional<ClientCeiling> ceiling;  // absent: not measured
};

SendLag LagOf(const std::vector<RunRecord>& runs);

// Why the figures say more of the client than of the server; empty when they do not.
std::vector<std::string> WhyInvalid(const BenchSummary& summary, const ClientFacts& client);

}  // namespace bulkhead
