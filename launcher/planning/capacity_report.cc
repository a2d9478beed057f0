#include "launcher/planning/capacity_report.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace bulkhead {
namespace {

v1::RankRow RowOf(const RankCapacity& rank, const Limits& limits) {
  const DeviceBudget& budget = rank.budget;
  v1::RankRow row;
  row.set_rank(budget.rank);
  row.set_host(budget.host);
  row.set_device(budget.device);
  row.set_cores(budget.cores);
  row.set_numa_nodes(budget.numa_nodes);
  row.set_total_bytes(budget.total_bytes);
  row.set_others_bytes(budget.others_bytes);
  row.set_driver_bytes(budget.driver_bytes);
  row.set_reserve_bytes(budget.reserve_bytes);
  row.set_transient_bytes(rank.loading_bytes);
  row.set_host_bytes(rank.host_bytes);
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::kDraftModel && rank.arena_bytes[i] == 0) continue;
    v1::Arena& arena = *row.add_arenas();
    arena.set_term(MemoryCategoryName(category));
    arena.set_bytes(rank.arena_bytes[i]);
    if (rank.draft_bytes[i] == 0) continue;
    v1::Arena& part = *row.add_draft_model();
    part.set_term(MemoryCategoryName(category));
    part.set_bytes(rank.draft_bytes[i]);
  }
  row.set_free_bytes(rank.free_bytes);
  row.set_stranded_bytes(rank.stranded_bytes);
  row.set_required_bytes(rank.required_bytes);
  row.set_stored_weight_bytes(rank.stored_weight_bytes);
  row.set_kv_block_bytes(rank.kv_block_bytes);
  row.set_own_blocks(rank.own_blocks);
  row.set_kv_bytes_per_token(rank.KvBytesPerToken(limits));
  row.set_kv_rule(rank.rule_text);
  return row;
}

v1::HostBudget HostBudgetMessage(const HostBudget& host) {
  v1::HostBudget out;
  for (int i = 0; i < kNumHostParts; ++i) {
    v1::Arena& part = *out.add_terms();
    part.set_term(HostPartName(static_cast<HostPart>(i)));
    part.set_bytes(host.part_bytes[i]);
  }
  out.set_total_bytes(host.total_bytes());
  out.set_available_bytes(host.available_bytes.value_or(0));
  out.set_message_bytes(host.quotas.message_bytes);
  out.set_max_connections(host.quotas.max_connections);
  out.set_max_open_calls(host.quotas.max_open_calls);
  out.set_max_num_queued_reqs(host.max_num_queued_reqs);
  out.set_answer_bytes(host.quotas.answer_bytes);
  return out;
}

// What does not fit; `host` if the arenas fit.
v1::Shortage ShortageOf(const Capacity& capacity, const std::optional<HostBudget>& host) {
  v1::Shortage out;
  if (capacity.fits) {
    const int64_t left = host->available_bytes.value_or(0);
    out.set_term("host");
    out.set_bytes(host->total_bytes() - left);
    out.set_needed_bytes(host->total_bytes());
    out.set_left_bytes(left);
    return out;
  }
  const Shortage& shortage = *capacity.shortage;
  out.set_rank(shortage.rank);
  out.set_term(MemoryCategoryName(shortage.category));
  out.set_bytes(shortage.bytes);
  out.set_needed_bytes(shortage.needed_bytes);
  out.set_left_bytes(shortage.left_bytes);
  return out;
}

// The minimum --host-memory, in whole MiB.
int64_t EnoughMiB(const Capacity& capacity, const HostBudget& host) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  return (EnoughHostMemory(capacity, host) + kMiB - 1) / kMiB;
}

// Clients lack memory because of --host-memory.
bool LacksGiven(const HostBudget& host) {
  return !host.fits() && host.given_bytes.has_value() && host.available_bytes == host.given_bytes;
}

std::string HostShortageText(const Capacity& capacity, const HostBudget& host) {
  const int64_t left = host.available_bytes.value_or(0);
  const std::string text =
      absl::StrCat("does not fit: rank 0's host lacks ", FormatBytes(host.total_bytes() - left),
                   " for host, which needs ", FormatBytes(host.total_bytes()),
                   " for clients with the smallest quotas, where ");
  if (!LacksGiven(host)) return absl::StrCat(text, FormatBytes(left), " are left");
  return absl::StrCat(text, "--host-memory gives ", FormatBytes(left),
                      "; give at least --host-memory ", EnoughMiB(capacity, host),
                      "MiB, or a smaller --max-model-len, --max-num-seqs or --max-num-queued-reqs");
}

}  // namespace

v1::Report ReportOf(const Capacity& capacity, const Remedies& remedies, const ReportFacts& facts) {
  v1::Report report;
  report.set_fits(capacity.fits && (!facts.host.has_value() || facts.host->fits()));
  report.set_device_allocations_after_ready(facts.device_allocations_after_ready);
  report.set_max_model_len(capacity.limits.max_model_len);
  report.set_max_num_seqs(capacity.limits.max_num_seqs);
  report.set_max_num_batched_tokens(capacity.limits.max_num_batched_tokens);
  report.set_weight_dtype(facts.weight_dtype);
  report.set_kv_cache_dtype(facts.kv_cache_dtype);
  report.set_block_size(capacity.limits.block_tokens);
  report.set_num_kv_blocks(capacity.limits.num_kv_blocks);
  report.set_kv_tokens(capacity.limits.kv_tokens());
  report.set_full_sequences(capacity.full_sequences);
  for (const KvGroup& group : capacity.limits.kv_groups) {
    v1::KvGroup& out = *report.add_kv_groups();
    out.set_num_layers(group.num_layers);
    if (group.window > 0) out.set_window(group.window);
    out.set_blocks_per_sequence(
        capacity.limits.BlocksOfGroup(group, capacity.limits.max_model_len));
  }
  report.mutable_binding()->set_rank(capacity.binding_rank);
  report.mutable_binding()->set_term(MemoryCategoryName(capacity.limiting_category));
  for (const RankCapacity& rank : capacity.ranks) {
    *report.add_ranks() = RowOf(rank, capacity.limits);
  }
  if (facts.driver.has_value()) {
    v1::DriverGuess& guess = *report.mutable_driver_guess();
    guess.set_least_bytes(facts.driver->least_bytes);
    guess.set_most_bytes(facts.driver->most_bytes);
    guess.set_kv_tokens_of_least(facts.driver->most_kv_tokens);
  }
  if (facts.host.has_value()) *report.mutable_host() = HostBudgetMessage(*facts.host);
  if (report.fits()) return report;
  *report.mutable_short_() = ShortageOf(capacity, facts.host);
  for (const Remedy& remedy : remedies.list) {
    v1::Remedy& out = *report.add_remedies();
    out.mutable_flags()->Assign(remedy.flags.begin(), remedy.flags.end());
    out.set_text(remedy.text);
  }
  if (remedies.list.empty()) report.set_no_remedy(remedies.none_because);
  return report;
}

std::string ShortageText(const Capacity& capacity, const std::optional<HostBudget>& host) {
  if (!capacity.shortage.has_value()) return HostShortageText(capacity, *host);
  const Shortage& shortage = *capacity.shortage;
  const DeviceBudget& budget = capacity.ranks[shortage.rank].budget;
  // A pool sized by a KV rule is no lack of device memory.
  const std::string& rule = capacity.ranks[shortage.rank].rule_text;
  const std::string left = FormatBytes(shortage.left_bytes);
  const bool is_ruled = shortage.category == MemoryCategory::kKv && absl::StrContains(rule, left) &&
                        !absl::StrContains(rule, " left after ");
  const bool holds_host = host.has_value() && budget.probed && budget.on_cpu();
  return absl::StrFormat(
      "does not fit: rank %d%s lacks %s (%d bytes) for %s, which needs %s where %s%s%s%s",
      shortage.rank, budget.host.empty() ? "" : absl::StrCat(" on ", budget.host),
      FormatBytes(shortage.bytes), shortage.bytes, MemoryCategoryName(shortage.category),
      FormatBytes(shortage.needed_bytes),
      is_ruled ? absl::StrCat("the KV rule gives ", left, " (", rule, ")")
               : absl::StrCat(shortage.left_bytes > 0 ? absl::StrCat(left, " are") : "nothing is",
                              " left of ", FormatBytes(budget.total_bytes)),
      budget.others_bytes > 0
          ? absl::StrCat(" (others use ", FormatBytes(budget.others_bytes),
                         budget.driver_bytes > 0
                             ? absl::StrCat(", the driver ", FormatBytes(budget.driver_bytes))
                             : "",
                         ")")
          : "",
      holds_host ? absl::StrCat(" after a reserve of ", FormatBytes(budget.reserve_bytes),
                                "; clients on rank 0's host need ",
                                FormatBytes(host->total_bytes()), " of the ranks' reserves (host)")
      : budget.reserve_bytes > 0 && !is_ruled
          ? absl::StrCat(" after a reserve of ", FormatBytes(budget.reserve_bytes))
          : "",
      host.has_value() && LacksGiven(*host)
          ? absl::StrCat("; nor does --host-memory (", FormatBytes(*host->given_bytes),
                         ") hold what clients need (host): give at least --host-memory ",
                         EnoughMiB(capacity, *host), "MiB")
          : "");
}

std::string RemediesText(const Remedies& remedies) {
  if (remedies.list.empty())
    return absl::StrCat("no change that was tried helps: ", remedies.none_because);
  std::string text = "each of these makes it fit:";
  for (const Remedy& remedy : remedies.list) absl::StrAppend(&text, "\n  ", remedy.text);
  return text;
}

}  // namespace bulkhead
