#include "launcher/planning/host_memory_change.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "launcher/flags/options.h"

namespace bulkhead {
namespace {

Attempt At(int64_t bytes) {
  const std::string value = absl::StrCat(bytes);
  return {{"--host-memory", value},
          absl::StrCat("--host-memory ", value, " (", FormatBytes(bytes), "), the least"),
          1};
}

}  // namespace

std::optional<Attempt> HostMemoryChange::Mildest(const FlagList& with) const {
  // With almost nothing the quotas are at their minimum.
  const std::optional<GroupPlan> plan = trials_.Plan(Joined(with, At(1).flags));
  if (!plan.has_value() || !plan->host.has_value()) return std::nullopt;
  Attempt attempt = At(EnoughHostMemory(plan->capacity, *plan->host));
  if (!trials_.Fits(Joined(with, attempt.flags))) return std::nullopt;
  return attempt;
}

std::vector<Attempt> HostMemoryChange::Steps() const { return {At(kMaxHostMemory)}; }

}  // namespace bulkhead
