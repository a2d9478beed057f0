#include "launcher/planning/host_fit.h"

#include <algorithm>
#include <filesystem>

#include "base/status.h"

namespace bulkhead {
namespace {

// Clients' part of the free memory of rank 0's ranks' host, as long as smaller quotas suffice.
constexpr int kShareDivisor = 3;
// A larger reserve leaves smaller limits and so a smaller budget: converges in a few rounds.
constexpr int kMaxRounds = 8;

int64_t FreeBytes(absl::Span<const DeviceBudget> budgets, const std::vector<int>& ranks) {
  int64_t sum = 0;
  for (const int rank : ranks) sum += budgets[rank].free_bytes();
  return sum;
}

std::vector<DeviceBudget> Holding(int64_t host_bytes, const std::vector<int>& sharers,
                                  std::vector<DeviceBudget> budgets) {
  const auto parts = static_cast<int64_t>(sharers.size());
  for (const int rank : sharers) {
    int64_t& reserve = budgets[rank].reserve_bytes;
    reserve = std::max(reserve, (host_bytes + parts - 1) / parts);
  }
  return budgets;
}

// With the quotas of this step held by the reserve.
absl::StatusOr<GroupPlan> PlanAtStep(const ModelCapacity& model,
                                     const std::vector<DeviceBudget>& budgets,
                                     const HostRequest& request, const std::vector<int>& sharers,
                                     int step) {
  GroupPlan plan;
  int64_t held = 0;
  bool lowered = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    BH_ASSIGN_OR_RETURN(plan.capacity, model.Fit(Holding(held, sharers, budgets)));
    plan.host = HostBudgetAt(step, request, plan.capacity);
    const int64_t wanted = plan.host->total_bytes();
    // If reducing the limits did not help, they need less than was reserved for larger ones.
    const bool in_vain = !plan.capacity.fits && wanted < held && !lowered;
    if (wanted <= held && !in_vain) break;
    lowered = lowered || in_vain;
    held = wanted;
  }
  return plan;
}

// Memory left for the host budget by the arenas of a plan that fits.
int64_t LeftBytes(const Capacity& capacity, const std::vector<int>& sharers) {
  int64_t left = 0;
  for (const int rank : sharers) {
    const RankCapacity& mine = capacity.ranks[rank];
    left += mine.free_bytes + mine.budget.reserve_bytes;
  }
  return std::max<int64_t>(0, left);
}

absl::StatusOr<GroupPlan> PlanMeasured(const ModelCapacity& model,
                                       const std::vector<DeviceBudget>& budgets,
                                       const HostRequest& request,
                                       const HostAvailability& available) {
  const int64_t share =
      request.host_memory.value_or(FreeBytes(budgets, available.sharers) / kShareDivisor);
  BH_ASSIGN_OR_RETURN(GroupPlan least,
                      PlanAtStep(model, budgets, request, available.sharers, kNumHostSteps - 1));
  for (int step = 0; step < kNumHostSteps - 1; ++step) {
    BH_ASSIGN_OR_RETURN(GroupPlan plan,
                        PlanAtStep(model, budgets, request, available.sharers, step));
    const bool limits_stand =
        GivenLimits(plan.capacity.limits) == GivenLimits(least.capacity.limits);
    if (!plan.capacity.fits || !limits_stand || plan.host->total_bytes() > share) continue;
    least = std::move(plan);
    break;
  }
  least.host->available_bytes = request.host_memory;
  if (!request.host_memory.has_value() && least.capacity.fits) {
    least.host->available_bytes = LeftBytes(least.capacity, available.sharers);
  }
  return least;
}

}  // namespace

HostRequest HostRequestOf(const ServeOptions& options, const std::string& dir, int ranks_on_host) {
  HostRequest request;
  request.max_num_queued_reqs = options.max_num_queued_reqs;
  request.host_memory = options.host_memory;
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(dir + "/tokenizer.json", absent);
  if (!absent) request.tokenizer_file_bytes = static_cast<int64_t>(bytes);
  request.prefix_caching = options.engine.enable_prefix_caching;
  request.ranks_on_host = ranks_on_host;
  request.http = options.http_port.has_value();
  request.metrics_port = options.metrics_port.has_value();
  request.tls = options.security.ssl_certfile.has_value();
  request.access_control = options.security.HasAccessControl();
  request.kv_events = options.enable_kv_cache_events;
  return request;
}

std::vector<DeviceBudget> GroupPlan::budgets() const {
  std::vector<DeviceBudget> budgets;
  for (const RankCapacity& rank : capacity.ranks) budgets.push_back(rank.budget);
  return budgets;
}

absl::StatusOr<GroupPlan> FitGroup(const ModelCapacity& model,
                                   absl::Span<const DeviceBudget> budgets,
                                   const std::optional<HostRequest>& request,
                                   const HostAvailability& available) {
  if (request.has_value() && !available.sharers.empty()) {
    return PlanMeasured(model, {budgets.begin(), budgets.end()}, *request, available);
  }
  GroupPlan plan;
  BH_ASSIGN_OR_RETURN(plan.capacity, model.Fit(budgets));
  if (request.has_value()) {
    const std::optional<int64_t> available_bytes =
        request->host_memory.has_value() ? request->host_memory : available.available_bytes;
    plan.host = FitHostBudget(*request, plan.capacity, available_bytes);
  }
  return plan;
}

absl::StatusOr<GroupPlan> PlanGroup(const ModelCapacity& model,
                                    absl::Span<const DeviceBudget> budgets,
                                    const std::optional<HostRequest>& request,
                                    const HostAvailability& available) {
  BH_ASSIGN_OR_RETURN(GroupPlan plan, FitGroup(model, budgets, request, available));
  BH_ASSIGN_OR_RETURN(plan.capacity, model.Plan(plan.budgets()));
  return plan;
}

int64_t EnoughHostMemory(const Capacity& capacity, const HostBudget& host) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const DeviceBudget& first = capacity.ranks[0].budget;
  if (!first.probed || !first.on_cpu()) return host.total_bytes();
  const int64_t index = host.part_bytes[static_cast<int>(HostPart::kPrefixCache)];
  return (host.total_bytes() + index / 8 + kMiB - 1) / kMiB * kMiB;
}

}  // namespace bulkhead
