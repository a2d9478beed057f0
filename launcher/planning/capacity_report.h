// The capacity report: what fits and what is the bottleneck, as a table for people and as a message
// for programs, whose JSON (base/message_json.h) `plan --json` prints and `serve --report` writes.
#pragma once

#include <optional>
#include <string>

#include "bulkhead/v1/report.pb.h"
#include "launcher/planning/host_budget.h"
#include "launcher/planning/remedies.h"
#include "memory/capacity.h"
#include "shard/model_config.h"

namespace bulkhead {

// Estimated range of the libraries' GPU memory; the table uses the maximum.
struct DriverRange {
  int64_t least_bytes = 0;
  int64_t most_bytes = 0;
  int64_t most_kv_tokens = 0;  // with least_bytes; 0: still does not fit
};

// What a report contains besides the numbers.
struct ReportFacts {
  std::string kv_cache_dtype = "";
  std::string weight_dtype = "";
  uint64_t device_allocations_after_ready = 0;
  std::optional<HostBudget> host = std::nullopt;     // a server's
  std::optional<DriverRange> driver = std::nullopt;  // for GPUs that were not measured
};

// `remedies` is only used if it does not fit.
v1::Report ReportOf(const Capacity& capacity, const Remedies& remedies, const ReportFacts& facts);

// The limits, and the KV cache with the rank that limits it, in one line.
std::string CapacityText(const Capacity& capacity);

// One row per rank; the binding rank is marked and explained below.
std::string CapacityTable(const Capacity& capacity);

// The KV cache at the minimum and maximum driver memory, in one line.
std::string DriverRangeText(const Capacity& capacity, const DriverRange& range);

// "1 rank", "4 ranks".
std::string RanksText(size_t ranks);

// The maximum host memory for clients on rank 0's host, part by part, and the quotas behind it, in
// one line.
std::string HostText(const HostBudget& host);

// What more ranks would and would not change, for a group of `size`, in one line.
std::string MoreRanksText(const ModelConfig& config, int size);

// Why it does not fit, in one line: rank, host, category, and missing bytes. `host`: as in
// ReportFacts.
std::string ShortageText(const Capacity& capacity,
                         const std::optional<HostBudget>& host = std::nullopt);
// The remedies as lines, or why there are none.
std::string RemediesText(const Remedies& remedies);

}  // namespace bulkhead
