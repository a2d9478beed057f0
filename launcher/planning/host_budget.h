// HostBudget: what rank 0's host keeps for the group's clients, beside the ranks' arenas: term by
// term a bound, whatever clients do, and the quotas that make it one. Pure arithmetic, so that
// `plan` and `serve` come to the same.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "memory/capacity.h"
#include "runtime/service/host_quotas.h"

namespace bulkhead {

enum class HostPart : int {
  kGrpc,         // gRPC's resource quota
  kConnections,  // what goes with a connection, and the control port
  kCalls,        // what goes with an open call
  kRequests,     // bodies that come in
  kQueue,        // requests that wait or run: their tokens and books
  kText,         // long texts that wait to be tokenised, and what tokenising one takes
  kAnswers,      // that are not finished or not sent
  kPrefixCache,  // its index; the blocks themselves are KV
  kTokenizer,
  kHeapSlack,  // every rank's heap on this host, threads, and what malloc does not give back
};
inline constexpr int kNumHostParts = 10;

// "grpc", "connections", ...
const char* HostPartName(HostPart part);

// What a server's host budget follows from, besides the limits of its plan: equal on every rank
// once rank 0's has been told to all.
struct HostRequest {
  std::optional<int> max_num_queued_reqs = std::nullopt;  // absent: 1024, or what fits
  std::optional<int64_t> host_memory = std::nullopt;      // --host-memory
  int64_t tokenizer_file_bytes = 0;
  bool prefix_caching = true;
  int ranks_on_host = 1;  // of rank 0

  // One line of text, for the exchange between ranks.
  std::string Serialize() const;
  static absl::StatusOr<HostRequest> Parse(absl::string_view text);
};

struct HostBudget {
  std::array<int64_t, kNumHostParts> part_bytes{};
  HostQuotas quotas;
  int max_num_queued_reqs = 0;
  int step = 0;                            // how small the quotas are
  std::optional<int64_t> available_bytes;  // what there is for them; absent: not known
  std::optional<int64_t> given_bytes;      // --host-memory

  int64_t total_bytes() const;
  // What is there at READY already: no client makes it grow.
  int64_t standing_bytes() const;
  bool fits() const { return total_bytes() <= available_bytes.value_or(total_bytes()); }
};

// Quotas shrink in steps, each half of the one before, down to what one request needs.
inline constexpr int kNumHostSteps = 6;
HostBudget HostBudgetAt(int step, const HostRequest& request, const Capacity& capacity);

// The largest that fits into `available_bytes` (absent: any does), else the smallest there is.
HostBudget FitHostBudget(const HostRequest& request, const Capacity& capacity,
                         std::optional<int64_t> available_bytes);

// What every rank's heap beside its arenas comes to at READY, rank 0's server included; more is
// told at READY.
inline constexpr int64_t kRank0HeapBytes = int64_t{24} << 20;
inline constexpr int64_t kRankHeapBytes = int64_t{12} << 20;

}  // namespace bulkhead
