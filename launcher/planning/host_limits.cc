#include "launcher/planning/host_limits.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/planning/capacity_report.h"

namespace bulkhead {
namespace {

constexpr const char* kPlanSeesNone =
    "; `plan` does not look at the machine, and may report that it fits";

// The ranks that have this limit.
std::vector<int> RanksUnder(const LimitsOfRanks& limits, const std::string& id) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(limits.size()); ++rank) {
    const bool has = std::any_of(limits[rank].begin(), limits[rank].end(),
                                 [&](const HostLimit& limit) { return limit.id == id; });
    if (has) ranks.push_back(rank);
  }
  return ranks;
}

// The id of a rank's tightest limit.
std::string TightestOf(const LimitsOfRanks& limits, int rank) {
  const auto share = [&](const HostLimit& limit) {
    return limit.available_bytes / static_cast<int64_t>(RanksUnder(limits, limit.id).size());
  };
  const std::vector<HostLimit>& mine = limits[rank];
  return std::min_element(mine.begin(), mine.end(),
                          [&](const auto& a, const auto& b) { return share(a) < share(b); })
      ->id;
}

// Under one limit: the bytes that ranks may allocate, and that they will.
struct Claim {
  HostLimit limit;
  std::vector<int> ranks;
  int64_t cap_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t beside_bytes = 0;   // RankCapacity::host_bytes
  int64_t loading_bytes = 0;  // until all weights are loaded
  bool holds_host = false;
};

std::vector<Claim> ClaimsOf(const LimitsOfRanks& limits, const Capacity& capacity) {
  std::vector<Claim> claims;
  for (const std::vector<HostLimit>& of_rank : limits) {
    for (const HostLimit& limit : of_rank) {
      const bool known = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
        return claim.limit.id == limit.id;
      });
      if (known) continue;
      Claim claim{.limit = limit, .ranks = RanksUnder(limits, limit.id)};
      claim.holds_host = claim.ranks.front() == 0;
      for (const int rank : claim.ranks) {
        const RankCapacity& planned = capacity.ranks[rank];
        claim.loading_bytes += planned.loading_bytes;
        claim.beside_bytes += planned.host_bytes;
        if (!planned.budget.on_cpu()) continue;  // its arenas are in GPU memory
        claim.cap_bytes += planned.budget.total_bytes;
        claim.arena_bytes +=
            std::accumulate(planned.arena_bytes.begin(), planned.arena_bytes.end(), int64_t{0});
      }
      claims.push_back(std::move(claim));
    }
  }
  return claims;
}

absl::Status Refusal(const std::string& text) {
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat("does not fit: ", text)),
                      ExitCode::kDoesNotFit);
}

std::string RanksText(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? absl::StrCat("rank ", ranks[0])
                           : absl::StrCat("ranks ", ranks.front(), " to ", ranks.back());
}

std::string AtMost(int64_t left, const Claim& claim) {
  const int64_t mib = (left / static_cast<int64_t>(claim.ranks.size())) >> 20;
  if (mib == 0) return "use smaller limits";
  return absl::StrCat("give the ranks there at most ", mib, "MiB each with --device-memory");
}

// More than the limit itself, regardless of other users.
absl::Status TooLarge(const Claim& claim, int64_t host_bytes) {
  // Clients come when the weights are loaded.
  const int64_t others_bytes = std::max(host_bytes, claim.loading_bytes);
  const int64_t left = std::max<int64_t>(0, claim.limit.total_bytes - others_bytes);
  std::string wanted;
  if (claim.cap_bytes > 0) {
    absl::StrAppend(&wanted, "--device-memory gives ", RanksText(claim.ranks), " ",
                    FormatBytes(claim.cap_bytes));
  }
  if (claim.beside_bytes > 0) {
    absl::StrAppend(&wanted, RanksText(claim.ranks), " need ", FormatBytes(claim.beside_bytes),
                    " of host memory");
  }
  if (host_bytes > 0) {
    absl::StrAppend(&wanted, wanted.empty() ? "" : " and ", "clients on rank 0's host need ",
                    FormatBytes(host_bytes), " (host)");
  }
  return Refusal(absl::StrCat(
      wanted, ", but ", claim.limit.name, " has ", FormatBytes(claim.limit.total_bytes),
      " in all; ", claim.cap_bytes == 0 ? "use smaller limits" : AtMost(left, claim), ", or ",
      claim.limit.cgroup ? "give the cgroup" : "use a host with", " more memory", kPlanSeesNone));
}

// More than the memory available now.
absl::Status TooLargeNow(const Claim& claim, int64_t free_bytes) {
  const bool on_cpu = claim.arena_bytes > 0;
  const int64_t left = std::max<int64_t>(0, free_bytes - claim.loading_bytes);
  const std::string arenas = on_cpu ? AtMost(left, claim) : "use smaller limits";
  const bool only_loading = claim.arena_bytes + claim.beside_bytes <= free_bytes;
  const std::string loading =
      claim.loading_bytes == 0
          ? ""
          : absl::StrCat(", and loading their weights ", FormatBytes(claim.loading_bytes), " more");
  return Refusal(absl::StrCat(
      on_cpu ? "the arenas of " : "", RanksText(claim.ranks), " take ",
      FormatBytes(claim.arena_bytes + claim.beside_bytes), on_cpu ? "" : " of host memory", loading,
      ", but ", claim.limit.name, " has ", FormatBytes(free_bytes),
      " left now, and clients need memory of rank 0's host as well; end what else runs there, or ",
      only_loading ? "read with fewer --threads, or " : "",
      only_loading && !on_cpu ? "use a host with more memory" : arenas, kPlanSeesNone));
}

}  // namespace

HostMemory ShareOf(const LimitsOfRanks& limits, int rank) {
  HostMemory share{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  for (const HostLimit& limit : limits[rank]) {
    const auto ranks = static_cast<int64_t>(RanksUnder(limits, limit.id).size());
    share.total_bytes = std::min(share.total_bytes, limit.total_bytes / ranks);
    share.available_bytes = std::min(share.available_bytes, limit.available_bytes / ranks);
  }
  return share;
}

HostAvailability AvailabilityOf(const LimitsOfRanks& limits,
                                absl::Span<const DeviceBudget> budgets) {
  HostAvailability available;
  const bool on_cpu = budgets[0].on_cpu();
  if (on_cpu && budgets[0].probed) {
    const std::string id = TightestOf(limits, 0);
    for (const int rank : RanksUnder(limits, id)) {
      if (TightestOf(limits, rank) == id) available.sharers.push_back(rank);
    }
    return available;
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const HostLimit& limit : limits[0]) {
    int64_t left = limit.total_bytes;
    for (const int rank : RanksUnder(limits, limit.id)) {
      if (on_cpu) left -= budgets[rank].total_bytes;
    }
    least = std::min(least, left);
  }
  available.available_bytes = std::max<int64_t>(0, least);
  return available;
}

absl::Status FinalizeHost(const LimitsOfRanks& limits, const std::optional<HostRequest>& request,
                          GroupPlan& plan, std::string& warning) {
  const DeviceBudget& first = plan.capacity.ranks[0].budget;
  if (plan.host.has_value() && plan.host->given_bytes.has_value() && !plan.host->fits()) {
    return WithExitCode(absl::ResourceExhaustedError(ShortageText(plan.capacity, plan.host)),
                        ExitCode::kDoesNotFit);
  }
  if (first.probed && first.on_cpu()) return absl::OkStatus();  // measured: within the reserve
  const auto refuse = [&](const absl::Status& why, int64_t left) {
    if (plan.host.has_value()) plan.host->available_bytes = std::max<int64_t>(0, left);
    return why;
  };
  int64_t left_now = std::numeric_limits<int64_t>::max();
  const Claim* tightest = nullptr;
  const std::vector<Claim> claims = ClaimsOf(limits, plan.capacity);
  int64_t least_host_bytes = 0;
  if (plan.host.has_value()) {
    const bool shrinks = !request->host_memory.has_value();
    least_host_bytes =
        (shrinks ? HostBudgetAt(kNumHostSteps - 1, *request, plan.capacity) : *plan.host)
            .total_bytes();
  }
  for (const Claim& claim : claims) {
    const bool holds_host = claim.holds_host && plan.host.has_value();
    const int64_t host_bytes = holds_host ? least_host_bytes : 0;
    const int64_t left = claim.limit.total_bytes - claim.cap_bytes - claim.beside_bytes;
    if (host_bytes > left) return refuse(TooLarge(claim, host_bytes), left);
    const int64_t free_bytes = claim.limit.available_bytes;
    const int64_t kept_bytes = claim.arena_bytes + claim.beside_bytes;
    if (kept_bytes + claim.loading_bytes > free_bytes) {
      return refuse(TooLargeNow(claim, free_bytes), free_bytes - kept_bytes);
    }
    if (const int64_t left_here = std::min(left, free_bytes - kept_bytes);
        holds_host && left_here < left_now) {
      left_now = left_here;
      tightest = &claim;
    }
  }
  if (tightest == nullptr || plan.host->total_bytes() <= left_now) return absl::OkStatus();
  if (!request->host_memory.has_value()) {
    const HostBudget smaller = FitHostBudget(*request, plan.capacity, left_now);
    plan.host = smaller;
    if (smaller.fits()) return absl::OkStatus();
    plan.host->available_bytes =
        tightest->limit.total_bytes - tightest->cap_bytes - tightest->beside_bytes;
  }
  warning = absl::StrCat("clients may use up to ", FormatBytes(plan.host->total_bytes()),
                         " on rank 0's host, but ", tightest->limit.name, " has only ",
                         FormatBytes(left_now),
                         " left now after the arenas, since other processes use memory; if it "
                         "runs out, the kernel kills processes");
  return absl::OkStatus();
}

}  // namespace bulkhead
