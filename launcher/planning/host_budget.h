// HostBudget: memory on rank 0's host for the group's clients, besides the ranks' arenas: an upper
// bound per part, whatever clients do, and the quotas that enforce it. Pure arithmetic, so that
// `plan` and `serve` agree.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "memory/capacity.h"
#include "runtime/service/host_quotas.h"

namespace bulkhead {

enum class HostPart : int {
  kGrpc,         // gRPC's resource quota
  kConnections,  // per connection, the control port, and answers of /metrics
  kCalls,        // per open call
  kRequests,     // incoming bodies
  kQueue,        // waiting or running requests: tokens and state
  kText,         // long texts waiting to be tokenised, and the memory to tokenise one
  kAnswers,      // unfinished or unsent
  kPrefixCache,  // its index; the blocks themselves are KV
  kTokenizer,
  kStructured,  // trie of the tokens, grammars, automata; none without a tokenizer
  kHeapSlack,   // every rank's heap on this host, threads, and memory that malloc retains
};
inline constexpr int kNumHostParts = 11;

// "grpc", "connections", ...
const char* HostPartName(HostPart part);

// Limit of the other files that are sent with tokenizer.json (launcher/group/tokenizer_archive.h).
inline constexpr int64_t kMaxArchivedBesidesBytes = int64_t{2} << 20;

// The inputs of a server's host budget besides the limits of its plan: equal on every rank once
// rank 0's are distributed.
struct HostRequest {
  std::optional<int> max_num_queued_reqs = std::nullopt;  // absent: 1024, or what fits
  std::optional<int64_t> host_memory = std::nullopt;      // --host-memory
  int64_t tokenizer_file_bytes = 0;
  bool prefix_caching = true;
  int ranks_on_host = 1;  // ranks on rank 0's host
  bool http = false;      // --http-port
  bool metrics_port = false;
  bool tls = false;             // --ssl-certfile
  bool access_control = false;  // API keys or client certificates
  bool kv_events = false;       // --enable-kv-cache-events
};

struct HostBudget {
  std::array<int64_t, kNumHostParts> part_bytes{};
  HostQuotas quotas;
  int max_num_queued_reqs = 0;
  int step = 0;                            // reduction step of the quotas
  std::optional<int64_t> available_bytes;  // available memory; absent: unknown
  std::optional<int64_t> given_bytes;      // --host-memory

  int64_t total_bytes() const;
  // Already allocated at READY, independent of clients.
  int64_t standing_bytes() const;
  bool fits() const { return total_bytes() <= available_bytes.value_or(total_bytes()); }
};

// Quotas are reduced in steps, halving each time, down to what one request needs.
inline constexpr int kNumHostSteps = 6;
HostBudget HostBudgetAt(int step, const HostRequest& request, const Capacity& capacity);

// The largest that fits into `available_bytes` (absent: unlimited), else the smallest.
HostBudget FitHostBudget(const HostRequest& request, const Capacity& capacity,
                         std::optional<int64_t> available_bytes);

// Every rank's heap outside its arenas at READY, including rank 0's server; more is reported at
// READY.
inline constexpr int64_t kRank0HeapBytes = int64_t{24} << 20;
inline constexpr int64_t kRankHeapBytes = int64_t{12} << 20;

}  // namespace bulkhead
