// The host term: what rank 0 may come to hold for its clients, beside its device: bounded by limits
// alone; where memory is measured the reserve covers it. Not in it: what gRPC keeps for calls that
// are open and refused, some 20 KiB each, up to 8192 of a connection.
#pragma once

#include <cstdint>

#include "memory/capacity.h"

namespace bulkhead {

struct HostTerm {
  int64_t message_bytes = 0;       // the largest request that is read
  int64_t grpc_bytes = 0;          // gRPC's resource quota
  int64_t queue_bytes = 0;         // requests that wait: their tokens and what goes with them
  int64_t prefix_cache_bytes = 0;  // its index; the blocks themselves are KV

  int64_t total_bytes() const { return grpc_bytes + queue_bytes + prefix_cache_bytes; }
};

HostTerm HostTermOf(const Capacity& capacity, int max_num_queued_reqs, bool prefix_caching);

}  // namespace bulkhead
