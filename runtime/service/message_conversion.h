// Conversions between the engine's types and the public messages.
#pragma once

#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/service/engine_control.h"
#include "runtime/service/host_counters.h"

namespace bulkhead {

v1::Token ToProto(const GeneratedToken& token);
v1::Finished ToProto(const RequestEnd& end, int prompt_tokens);
v1::Limits ToProto(const SchedulerLimits& limits);
// Everything except the cgroup. `total_bytes`: of the host budget.
v1::HostLoad ToProto(const HostCounters& host, int64_t total_bytes);

}  // namespace bulkhead
