#include "launcher/planning/capacity_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/planning/device_budget.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

ordered_json RankJson(const RankCapacity& rank, int block_tokens) {
  ordered_json arenas;
  for (int i = 0; i < kNumMemoryCategories; ++i)
    arenas[MemoryCategoryName(static_cast<MemoryCategory>(i))] = rank.arena_bytes[i];
  return {{"rank", rank.budget.rank},
          {"host", rank.budget.host},
          {"device", rank.budget.device},
          {"total_bytes", rank.budget.total_bytes},
          {"others_bytes", rank.budget.others_bytes},
          {"driver_bytes", rank.budget.driver_bytes},
          {"reserve_bytes", rank.budget.reserve_bytes},
          {"transient_bytes", rank.budget.transient_bytes},
          {"required_bytes", rank.required_bytes},
          {"free_bytes", rank.free_bytes},
          {"stranded_bytes", rank.stranded_bytes},
          {"stored_weight_bytes", rank.stored_weight_bytes},
          {"kv_block_bytes", rank.kv_block_bytes},
          {"own_blocks", rank.own_blocks},
          {"kv_bytes_per_token", rank.kv_block_bytes / block_tokens},
          {"kv_rule", rank.rule_text},
          {"arenas", arenas}};
}

ordered_json ShortJson(const Shortage& shortage) {
  return {{"rank", shortage.rank},
          {"term", MemoryCategoryName(shortage.term)},
          {"bytes", shortage.bytes},
          {"needed_bytes", shortage.needed_bytes},
          {"left_bytes", shortage.left_bytes}};
}

ordered_json HostJson(const HostBudget& host) {
  ordered_json terms;
  for (int i = 0; i < kNumHostParts; ++i) {
    terms[HostPartName(static_cast<HostPart>(i))] = host.part_bytes[i];
  }
  return {{"terms", terms},
          {"total_bytes", host.total_bytes()},
          {"available_bytes", host.available_bytes.value_or(0)},
          {"message_bytes", host.quotas.message_bytes},
          {"max_connections", host.quotas.max_connections},
          {"max_open_calls", host.quotas.max_open_calls},
          {"max_num_queued_reqs", host.max_num_queued_reqs},
          {"answer_bytes", host.quotas.answer_bytes}};
}

// What does not fit besides the arenas.
ordered_json ShortJson(const HostBudget& host) {
  const int64_t left = host.available_bytes.value_or(0);
  return {{"rank", 0},
          {"term", "host"},
          {"bytes", host.total_bytes() - left},
          {"needed_bytes", host.total_bytes()},
          {"left_bytes", left}};
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
                   " for clients with the least quotas, where ");
  if (!LacksGiven(host)) return absl::StrCat(text, FormatBytes(left), " are left");
  return absl::StrCat(text, "--host-memory gives ", FormatBytes(left),
                      "; give at least --host-memory ", EnoughMiB(capacity, host),
                      "MiB, or a smaller --max-model-len, --max-num-seqs or --max-num-queued-reqs");
}

v1::HostBudget HostProto(const HostBudget& host) {
  v1::HostBudget out;
  for (int i = 0; i < kNumHostParts; ++i) {
    v1::Arena& term = *out.add_terms();
    term.set_term(HostPartName(static_cast<HostPart>(i)));
    term.set_bytes(host.part_bytes[i]);
  }
  out.set_total_bytes(host.total_bytes());
  out.set_available_bytes(host.available_bytes.value_or(0));
  out.set_message_bytes(host.quotas.message_bytes);
  out.set_max_connections(host.quotas.max_connections);
  out.set_max_open_calls(host.quotas.max_open_calls);
  out.set_answer_bytes(host.quotas.answer_bytes);
  return out;
}

using Row = std::vector<std::string>;

}  // namespace

std::string CapacityJson(const Capacity& capacity, const Remedies& remedies,
                         const ReportFacts& facts) {
  const bool host_fits = !facts.host.has_value() || facts.host->fits();
  ordered_json report = {
      {"fits", capacity.fits && host_fits},
      {"device_allocations_after_ready", facts.device_allocations_after_ready},
      {"max_model_len", capacity.limits.max_model_len},
      {"max_num_seqs", capacity.limits.max_num_seqs},
      {"max_num_batched_tokens", capacity.limits.max_num_batched_tokens},
      {"weight_dtype", facts.weight_dtype},
      {"kv_cache_dtype", facts.kv_cache_dtype},
      {"block_size", capacity.block_tokens},
      {"num_kv_blocks", capacity.num_kv_blocks},
      {"kv_tokens", capacity.num_kv_blocks * capacity.block_tokens},
      {"full_sequences", capacity.full_sequences},
      {"binding",
       {{"rank", capacity.binding_rank}, {"term", MemoryCategoryName(capacity.binding_term)}}},
  };
  ordered_json ranks = ordered_json::array();
  for (const RankCapacity& rank : capacity.ranks) {
    ranks.push_back(RankJson(rank, capacity.block_tokens));
  }
  report["ranks"] = std::move(ranks);
  if (!facts.state.empty()) report["state"] = facts.state;
  if (facts.process.has_value()) report["process"] = ProcessJson(*facts.process);
  if (!facts.lost.empty()) report["lost"] = facts.lost;
  if (facts.driver.has_value()) {
    report["driver_guess"] = {{"least_bytes", facts.driver->least_bytes},
                              {"most_bytes", facts.driver->most_bytes},
                              {"kv_tokens_of_least", facts.driver->most_kv_tokens}};
  }
  if (facts.host.has_value()) report["host"] = HostJson(*facts.host);
  if (!capacity.fits || !host_fits) {
    report["short"] = capacity.fits ? ShortJson(*facts.host) : ShortJson(*capacity.shortage);
    ordered_json list = ordered_json::array();
    for (const Remedy& remedy : remedies.list) {
      list.push_back({{"flags", remedy.flags}, {"text", remedy.text}});
    }
    report["remedies"] = std::move(list);
    if (remedies.list.empty()) report["no_remedy"] = remedies.none_because;
  }
  return report.dump(2) + "\n";
}

v1::RankTable RankTableOf(const Capacity& capacity, const ReportFacts& facts) {
  v1::RankTable table;
  table.set_max_num_seqs(capacity.limits.max_num_seqs);
  table.set_max_model_len(capacity.limits.max_model_len);
  table.set_max_num_batched_tokens(capacity.limits.max_num_batched_tokens);
  table.set_block_size(capacity.block_tokens);
  table.set_num_kv_blocks(capacity.num_kv_blocks);
  table.set_kv_cache_dtype(facts.kv_cache_dtype);
  table.set_binding_rank(capacity.binding_rank);
  table.set_binding_term(MemoryCategoryName(capacity.binding_term));
  table.set_device_allocations_after_ready(facts.device_allocations_after_ready);
  if (facts.host.has_value()) {
    table.set_host_bytes(facts.host->total_bytes());
    *table.mutable_host() = HostProto(*facts.host);
  }
  for (const RankCapacity& rank : capacity.ranks) {
    v1::RankRow& row = *table.add_ranks();
    row.set_rank(rank.budget.rank);
    row.set_host(rank.budget.host);
    row.set_device(rank.budget.device);
    row.set_cores(rank.budget.cores);
    row.set_numa_nodes(rank.budget.numa_nodes);
    row.set_total_bytes(rank.budget.total_bytes);
    row.set_others_bytes(rank.budget.others_bytes);
    row.set_driver_bytes(rank.budget.driver_bytes);
    row.set_reserve_bytes(rank.budget.reserve_bytes);
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      v1::Arena& arena = *row.add_arenas();
      arena.set_term(MemoryCategoryName(static_cast<MemoryCategory>(i)));
      arena.set_bytes(rank.arena_bytes[i]);
    }
    row.set_free_bytes(rank.free_bytes);
    row.set_stranded_bytes(rank.stranded_bytes);
    row.set_own_blocks(rank.own_blocks);
    row.set_required_bytes(rank.required_bytes);
    row.set_kv_bytes_per_token(rank.kv_block_bytes / capacity.block_tokens);
    row.set_kv_rule(rank.rule_text);
  }
  return table;
}

namespace {

// Library memory on the ranks' GPUs, in one line; empty if not counted.
std::string DriverText(const Capacity& capacity) {
  const auto [least, most] = std::minmax_element(
      capacity.ranks.begin(), capacity.ranks.end(),
      [](const auto& a, const auto& b) { return a.budget.driver_bytes < b.budget.driver_bytes; });
  const int64_t low = least->budget.driver_bytes;
  const int64_t high = most->budget.driver_bytes;
  if (high == 0) return "";
  return absl::StrCat("driver: ", low < high ? absl::StrCat(FormatBytes(low), " to ") : "",
                      FormatBytes(high), " of each GPU",
                      low < high ? absl::StrCat(" (most on rank ", most->budget.rank, ")") : "",
                      " for what libraries take beside our arenas\n");
}

}  // namespace

std::string CapacityTable(const Capacity& capacity) {
  std::vector<Row> rows = {{"rank", "device", "total", "others", "reserve", "weights", "comm",
                            "activations", "tables", "logits", "workspace", "kv", "blocks", "free",
                            "least to start"}};
  for (const RankCapacity& rank : capacity.ranks) {
    const DeviceBudget& budget = rank.budget;
    const bool binds = budget.rank == capacity.binding_rank;
    Row row = {absl::StrCat(budget.rank, binds ? " <" : ""),
               budget.host.empty() ? budget.device : absl::StrCat(budget.host, " ", budget.device),
               FormatBytes(budget.total_bytes), FormatBytes(budget.others_bytes),
               FormatBytes(budget.reserve_bytes)};
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      const bool marked = binds && static_cast<MemoryCategory>(i) == capacity.binding_term;
      row.push_back(absl::StrCat(FormatBytes(rank.arena_bytes[i]), marked ? " *" : ""));
    }
    row.push_back(capacity.fits && rank.kv_block_bytes > 0 ? FormatCount(rank.own_blocks) : "-");
    row.push_back(capacity.fits ? FormatBytes(rank.free_bytes) : "-");
    row.push_back(rank.required_bytes > 0 ? FormatBytes(rank.required_bytes) : "-");
    rows.push_back(std::move(row));
  }
  std::string text = TextTable(rows);
  const GroupLimits& limits = capacity.limits;
  absl::StrAppend(&text, "limits: max_num_seqs ", FormatCount(limits.max_num_seqs),
                  ", max_model_len ", FormatCount(limits.max_model_len),
                  ", max_num_batched_tokens ", FormatCount(limits.max_num_batched_tokens), "\n");
  if (const int64_t staging = capacity.ranks[0].budget.transient_bytes; staging > 0) {
    absl::StrAppend(&text, "while weights load: ", FormatBytes(staging),
                    " of staging on rank 0, within its reserve\n");
  }
  absl::StrAppend(&text, DriverText(capacity));
  if (!capacity.fits) return text;
  const RankCapacity& binding = capacity.ranks[capacity.binding_rank];
  absl::StrAppend(&text, "KV cache: ", FormatCount(capacity.num_kv_blocks), " blocks of ",
                  capacity.block_tokens, " = ",
                  FormatCount(capacity.num_kv_blocks * capacity.block_tokens),
                  " tokens, limited by rank ", capacity.binding_rank,
                  binding.budget.host.empty() ? "" : absl::StrCat(" on ", binding.budget.host),
                  " (", binding.rule_text, "); holds ", FormatCount(capacity.full_sequences),
                  capacity.full_sequences == 1 ? " sequence" : " sequences", " of max_model_len",
                  capacity.full_sequences < limits.max_num_seqs
                      ? absl::StrCat(", fewer than max_num_seqs ", FormatCount(limits.max_num_seqs),
                                     ": the rest wait\n")
                      : "\n");
  int64_t stranded = 0;
  for (const RankCapacity& rank : capacity.ranks) stranded += rank.stranded_bytes;
  if (stranded > 0) {
    absl::StrAppend(&text, "stranded: ", FormatBytes(stranded),
                    " of KV that the other ranks could hold and rank ", capacity.binding_rank,
                    " cannot\n");
  }
  return text;
}

std::string DriverRangeText(const Capacity& capacity, const DriverRange& range) {
  const std::string kv =
      capacity.fits
          ? absl::StrCat("KV cache: ", FormatCount(capacity.num_kv_blocks * capacity.block_tokens),
                         " to ", FormatCount(range.most_kv_tokens), " tokens, as libraries take ",
                         FormatBytes(range.most_bytes), " (counted above) or ",
                         FormatBytes(range.least_bytes), " of each GPU")
      : range.most_kv_tokens > 0
          ? absl::StrCat("it would fit, with ", FormatCount(range.most_kv_tokens),
                         " tokens, if libraries took ", FormatBytes(range.least_bytes),
                         " of each GPU and not ", FormatBytes(range.most_bytes))
          : absl::StrCat("nor would it if libraries took ", FormatBytes(range.least_bytes),
                         " of each GPU and not ", FormatBytes(range.most_bytes));
  return absl::StrCat(kv, ": an estimate, until serve measures it (", kDriverGuessSource, ")");
}

std::string RanksText(size_t ranks) { return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks"); }

std::string HostText(const HostBudget& host) {
  std::string text = absl::StrCat("host: at most ", FormatBytes(host.total_bytes()),
                                  " for clients on rank 0's host, beside the arenas: ");
  for (int i = 0; i < kNumHostParts; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", HostPartName(static_cast<HostPart>(i)), " ",
                    FormatBytes(host.part_bytes[i]));
  }
  const HostQuotas& quotas = host.quotas;
  return absl::StrCat(text, "; a message has at most ", FormatBytes(quotas.message_bytes), ", ",
                      FormatCount(quotas.max_connections), " clients connect, ",
                      FormatCount(quotas.max_open_calls), " calls are open and ",
                      FormatCount(host.max_num_queued_reqs), " requests wait at once");
}

std::string MoreRanksText(int num_kv_heads, int size) {
  const std::string rest =
      "; weights fall further, hidden-width activations, block tables, rank 0's logits and "
      "workspace do not";
  if (size >= num_kv_heads) {
    return absl::StrCat("more ranks: KV bytes per token and rank stay as they are, each of the ",
                        num_kv_heads, " KV heads has a rank of its own already", rest);
  }
  return absl::StrCat("more ranks: KV bytes per token and rank fall until there are ", num_kv_heads,
                      ", one for each KV head", rest);
}

std::string ShortageText(const Capacity& capacity, const std::optional<HostBudget>& host) {
  if (!capacity.shortage.has_value()) return HostShortageText(capacity, *host);
  const Shortage& shortage = *capacity.shortage;
  const DeviceBudget& budget = capacity.ranks[shortage.rank].budget;
  const bool holds_host = host.has_value() && budget.probed && budget.on_cpu();
  return absl::StrFormat(
      "does not fit: rank %d%s lacks %s (%d bytes) for %s, which needs %s where %s left of "
      "%s%s%s%s",
      shortage.rank, budget.host.empty() ? "" : absl::StrCat(" on ", budget.host),
      FormatBytes(shortage.bytes), shortage.bytes, MemoryCategoryName(shortage.term),
      FormatBytes(shortage.needed_bytes),
      shortage.left_bytes > 0 ? absl::StrCat(FormatBytes(shortage.left_bytes), " are")
                              : "nothing is",
      FormatBytes(budget.total_bytes),
      budget.others_bytes > 0
          ? absl::StrCat(" (others use ", FormatBytes(budget.others_bytes),
                         budget.driver_bytes > 0
                             ? absl::StrCat(", the driver ", FormatBytes(budget.driver_bytes))
                             : "",
                         ")")
          : "",
      holds_host ? absl::StrCat(" beside a reserve of ", FormatBytes(budget.reserve_bytes),
                                "; clients on rank 0's host need ",
                                FormatBytes(host->total_bytes()), " of the ranks' reserves (host)")
                 : "",
      host.has_value() && LacksGiven(*host)
          ? absl::StrCat("; nor does --host-memory (", FormatBytes(*host->given_bytes),
                         ") hold what clients need (host): give at least --host-memory ",
                         EnoughMiB(capacity, *host), "MiB")
          : "");
}

std::string RemediesText(const Remedies& remedies) {
  if (remedies.list.empty())
    return absl::StrCat("no change of one flag or two helps: ", remedies.none_because);
  std::string text = "each of these makes it fit:";
  for (const Remedy& remedy : remedies.list) absl::StrAppend(&text, "\n  ", remedy.text);
  return text;
}

}  // namespace bulkhead
