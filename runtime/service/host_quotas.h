// HostQuotas: what rank 0's host gives its clients. Planned before anything is taken
// (launcher/planning/host_budget.h) and kept by the service: each quota is enforced where it is
// named, and their sum is the host budget of the plan.
#pragma once

#include <cstdint>

namespace bulkhead {

struct HostQuotas {
  int64_t message_bytes = int64_t{4} << 20;  // the largest request that is read
  int64_t grpc_bytes = int64_t{256} << 20;   // gRPC's resource quota
  int max_connections = 1024;
  int max_open_calls = 8192;  // of all connections together
  // Bodies of requests, all together: from a body's first byte until the service has taken the call
  // over (the first frame of its answer), as bytes on the wire.
  int64_t request_bytes = int64_t{64} << 20;
  // Answers that are not finished or not sent, all together, as bytes on the wire.
  int64_t answer_bytes = int64_t{256} << 20;
  int64_t text_bytes = int64_t{32} << 20;  // long texts that wait to be tokenised
  // All of the above and what goes with it: how much the process may grow beyond what is resident
  // at READY. 0: not known, and nothing is closed for it.
  int64_t total_bytes = 0;
};

}  // namespace bulkhead
