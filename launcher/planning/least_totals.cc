#include "launcher/planning/least_totals.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace bulkhead {
namespace {

using Totals = std::vector<int64_t>;

constexpr int kMaxRounds = 16;  // of replanning with the previous round's requirement
constexpr int kMaxPasses = 8;   // over all ranks, reducing one at a time
constexpr int kMaxDoublings = 40;
constexpr int64_t kPlenty = int64_t{1} << 45;

class MinTotals {
 public:
  MinTotals(const Capacity& plan, const PlanTotals& replan) : replan_(replan) {
    for (const RankCapacity& rank : plan.ranks) {
      budgets_.push_back(rank.budget);
      start_.push_back(rank.required_bytes);
    }
  }

  std::optional<Totals> Find() const {
    // If no memory is enough with these shares, it may be with equal ones.
    std::optional<Totals> start = start_;
    if (start->front() == 0) start = RequiredAt(Totals(budgets_.size(), kPlenty));
    if (!start.has_value() || start->front() == 0) return std::nullopt;
    std::optional<Totals> enough = Repeat(*std::move(start));
    if (!enough.has_value()) enough = Scale();
    if (enough.has_value()) Shrink(*enough);
    return enough;
  }

 private:
  absl::StatusOr<Capacity> PlanAt(const Totals& totals) const {
    std::vector<DeviceBudget> budgets = budgets_;
    for (size_t i = 0; i < totals.size(); ++i) budgets[i].total_bytes = totals[i];
    return replan_(budgets);
  }

  bool Fits(const Totals& totals) const {
    const absl::StatusOr<Capacity> plan = PlanAt(totals);
    return plan.ok() && plan->fits;
  }

  std::optional<Totals> RequiredAt(const Totals& totals) const {
    const absl::StatusOr<Capacity> plan = PlanAt(totals);
    if (!plan.ok()) return std::nullopt;
    Totals required;
    for (const RankCapacity& rank : plan->ranks) required.push_back(rank.required_bytes);
    return required;
  }

  // Iterates the requirement of the resulting split until it is stable.
  std::optional<Totals> Repeat(Totals totals) const {
    std::optional<Totals> enough;
    for (int round = 0; round < kMaxRounds; ++round) {
      const absl::StatusOr<Capacity> plan = PlanAt(totals);
      if (!plan.ok()) return enough;
      Totals next;
      for (const RankCapacity& rank : plan->ranks) next.push_back(rank.required_bytes);
      if (plan->fits) enough = totals;
      if (next == totals || next.front() == 0) return enough;
      totals = std::move(next);
    }
    return enough;
  }

  // In the ranks' current proportions and so, except for rounding, with their shares.
  std::optional<Totals> Scale() const {
    const auto scaled = [&](double factor) {
      Totals totals;
      for (const DeviceBudget& budget : budgets_) {
        const int64_t taken = budget.total_bytes - budget.free_bytes() + budget.reserve_bytes;
        const int64_t room = std::max<int64_t>(1, budget.total_bytes - taken);
        totals.push_back(taken + static_cast<int64_t>(factor * static_cast<double>(room)));
      }
      return totals;
    };
    double enough = 1.0 / (1 << 20);
    int doublings = 0;
    while (!Fits(scaled(enough))) {
      if (++doublings > kMaxDoublings) return std::nullopt;
      enough *= 2;
    }
    double less = enough / 2;
    for (int i = 0; i < 20; ++i) {
      const double middle = (less + enough) / 2;
      (Fits(scaled(middle)) ? enough : less) = middle;
    }
    return scaled(enough);
  }

  // Reduces one rank after the other as far as possible.
  void Shrink(Totals& totals) const {
    bool shrunk = true;
    for (int pass = 0; shrunk && pass < kMaxPasses; ++pass) {
      shrunk = false;
      for (int64_t& total : totals) {
        const int64_t now = total;
        total = now - 1;
        if (!Fits(totals)) {
          total = now;
          continue;
        }
        shrunk = true;
        int64_t less = 0;
        int64_t enough = now - 1;
        while (less < enough) {
          total = less + (enough - less) / 2;
          if (Fits(totals)) {
            enough = total;
          } else {
            less = total + 1;
          }
        }
        total = enough;
      }
    }
  }

  const PlanTotals& replan_;
  std::vector<DeviceBudget> budgets_;
  Totals start_;
};

}  // namespace

void SetLeastTotals(Capacity& plan, const PlanTotals& replan) {
  const std::optional<Totals> totals = MinTotals(plan, replan).Find();
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    plan.ranks[i].required_bytes = totals.has_value() ? (*totals)[i] : 0;
  }
}

}  // namespace bulkhead
