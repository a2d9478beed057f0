#include "launcher/planning/host_term.h"

#include "memory/prefix_cache.h"
#include "runtime/service/server.h"

namespace bulkhead {
namespace {

// A request beside its tokens: its books in service, coordinator and scheduler, and its call.
constexpr int64_t kRequestBytes = int64_t{16} << 10;

}  // namespace

HostTerm HostTermOf(const Capacity& capacity, int max_num_queued_reqs, bool prefix_caching) {
  const GroupLimits& limits = capacity.limits;
  const int64_t requests = int64_t{max_num_queued_reqs} + limits.max_num_seqs;
  HostTerm host;
  host.message_bytes = MaxMessageBytes(limits.max_model_len);
  host.grpc_bytes = BufferQuotaBytes(limits.max_model_len);
  host.queue_bytes =
      requests * (kRequestBytes + limits.max_model_len * static_cast<int64_t>(sizeof(int32_t)));
  if (prefix_caching && capacity.num_kv_blocks > 0) {
    host.prefix_cache_bytes = PrefixCache::HostBytes(capacity.num_kv_blocks, capacity.block_tokens);
  }
  return host;
}

}  // namespace bulkhead
