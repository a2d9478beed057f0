#include "launcher/clients/diagnosis.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

// A pool counts as full from here: more sequences would only wait for blocks.
constexpr double kFullShare = 0.8;
// A rank is reported as slow if it computes this much longer than the mean, after this many steps.
constexpr double kSlowExcess = 0.2;
constexpr uint64_t kMinSteps = 320;
// Clients' use of rank 0's host budget is reported from here.
constexpr double kHostShare = 0.85;

uint64_t ErrorsOf(const v1::LoadInfo& load, const std::string& reason) {
  const auto found = load.num_errors_by_reason().find(reason);
  return found == load.num_errors_by_reason().end() ? 0 : found->second;
}

double PeakShare(const v1::LoadInfo& load) {
  return load.num_kv_blocks() == 0 ? 0
                                   : static_cast<double>(load.num_kv_blocks_used_peak()) /
                                         static_cast<double>(load.num_kv_blocks());
}

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

// How the binding rank's pool was sized.
std::string KvRuleOf(const v1::RankTable& ranks) {
  const auto binding = static_cast<int>(ranks.binding_rank());
  return binding < ranks.ranks_size() ? ranks.ranks(binding).kv_rule() : "";
}

// Advice for a larger pool, cheapest first.
std::string LargerPool(const ServerSnapshot& seen) {
  if (HoldsAllSequences(seen.ranks)) {
    return "--max-num-seqs or --max-model-len: the KV cache holds as much as they allow, and grows "
           "with them";
  }
  if (absl::StrContains(KvRuleOf(seen.ranks), "--cache-max-entry-count")) {
    return "a larger --cache-max-entry-count: the KV cache has as many blocks as it says";
  }
  const std::string& dtype = seen.ranks.kv_cache_dtype();
  if (dtype != "int8" && dtype != "int4" && dtype != "fp8") {
    return "--kv-cache-dtype int8 (about twice the tokens in the same bytes)";
  }
  uint64_t stranded = 0;
  for (const v1::RankRow& row : seen.ranks.ranks()) stranded += row.stranded_bytes();
  if (stranded > 0) {
    return absl::StrCat("--tp-shares auto (", FormatBytes(static_cast<int64_t>(stranded)),
                        " are unused because rank ", seen.ranks.binding_rank(), " has less)");
  }
  if (absl::StrContains(KvRuleOf(seen.ranks), "--kv-cache-bytes")) return "more --kv-cache-bytes";
  return absl::StrCat("more memory for rank ", seen.ranks.binding_rank(),
                      " (--device-memory, a smaller --reserve, or a KV rule that leaves less)");
}

void AddBugs(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  const uint64_t late = seen.load.device_allocations_after_ready();
  if (late > 0) {
    findings.push_back({absl::StrCat(late,
                                     " device allocations were requested after READY and refused: "
                                     "a bug; please report it with --capture"),
                        ""});
  }
}

uint64_t Less(uint64_t a, uint64_t b) { return a < b ? 0 : a - b; }

double ShareOf(uint64_t used, uint64_t limit) {
  return limit == 0 ? 0 : static_cast<double>(used) / static_cast<double>(limit);
}

// The host quota that clients use most, and what to do about it.
struct HostUse {
  double share = 0;
  std::string what;
  const char* setting;
};

HostUse LargestUse(const ServerSnapshot& seen) {
  const v1::HostLoad& load = seen.load.host();
  const v1::HostBudget& budget = seen.ranks.host();
  const auto bytes = [](uint64_t count) { return FormatBytes(static_cast<int64_t>(count)); };
  const auto of = [](auto text, uint64_t used, uint64_t limit) {
    return absl::StrCat(text(used), " of ", text(limit));
  };
  const auto count = [](uint64_t n) { return FormatCount(static_cast<int64_t>(n)); };
  const uint64_t connections = load.connections().peak();
  const uint64_t calls = load.open_calls().peak();
  const uint64_t answers = load.answer_bytes().peak();
  const HostUse uses[] = {
      {ShareOf(connections, budget.max_connections()),
       absl::StrCat("connections, ", of(count, connections, budget.max_connections())),
       "fewer clients, or clients that share a connection"},
      {ShareOf(calls, budget.max_open_calls()),
       absl::StrCat("open calls, ", of(count, calls, budget.max_open_calls())),
       "fewer calls at once"},
      {ShareOf(answers, budget.answer_bytes()),
       absl::StrCat("answers, ", of(bytes, answers, budget.answer_bytes())),
       "clients that read their answers, shorter ones, or fewer log probabilities"},
  };
  return *std::max_element(std::begin(uses), std::end(uses),
                           [](const auto& a, const auto& b) { return a.share < b.share; });
}

// Rank 0's process and its cgroup against the planned bound.
void AddHost(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  const v1::HostLoad& load = seen.load.host();
  const uint64_t bound = HostGrowthBytes(seen.ranks.host());
  const HostGrowth grown = HostGrowthOf(seen.load);
  const auto bytes = [](uint64_t count) { return FormatBytes(static_cast<int64_t>(count)); };
  if (ShareOf(grown.peak, bound) >= kHostShare) {
    const HostUse use = LargestUse(seen);
    findings.push_back(
        {absl::StrCat("host: rank 0 has used ", bytes(grown.peak), " for clients (now ",
                      bytes(grown.now), ") of the ", bytes(bound),
                      " that its host budget allows; nearest to its quota: ", use.what),
         absl::StrCat(use.setting, "; or a larger --host-memory")});
  }
  if (load.cgroup_limit_bytes() > 0) {
    const uint64_t left = Less(load.cgroup_limit_bytes(), load.cgroup_used_bytes());
    const uint64_t to_come = Less(bound, grown.now);
    if (left < to_come) {
      findings.push_back(
          {absl::StrCat("the cgroup of rank 0 has ", bytes(left), " left of ",
                        bytes(load.cgroup_limit_bytes()), ", and clients may still take ",
                        bytes(to_come), " (host): the kernel kills processes when it runs out"),
           "a larger limit for the cgroup, or less memory for other processes in it"});
    }
  }
  const auto& closed = load.num_connections_closed_by_reason();
  for (const char* reason : {"OVERLOADED", "TOO_MANY_CONNECTIONS"}) {
    const auto found = closed.find(reason);
    if (found == closed.end() || found->second == 0) continue;
    findings.push_back({absl::StrCat(found->second, " connections were closed (", reason,
                                     "): clients were at the bound of the host budget"),
                        LargestUse(seen).setting});
  }
}

void AddPool(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  const v1::LoadInfo& load = seen.load;
  if (const uint64_t never = ErrorsOf(load, "KV_BUDGET"); never > 0) {
    findings.push_back({absl::StrCat(never,
                                     " requests were refused because they alone could come to more "
                                     "than the whole pool of ",
                                     FormatCount(static_cast<int64_t>(load.num_kv_blocks())),
                                     " blocks holds (KV_BUDGET)"),
                        LargerPool(seen)});
  }
  const uint64_t short_of_blocks = load.num_steps_short_of_blocks();
  if (short_of_blocks > 0) {
    findings.push_back(
        {absl::StrCat("pool full: in ", FormatCount(static_cast<int64_t>(short_of_blocks)),
                      " steps requests waited for KV blocks (peak ", Percent(PeakShare(load)),
                      " in use). They wait; this is not out of memory"),
         LargerPool(seen)});
  }
  if (const uint64_t preemptions = load.num_preemptions_total(); preemptions > 0) {
    findings.push_back(
        {absl::StrCat(preemptions,
                      " times a sequence was preempted and recomputed (--admission optimistic)"),
         "--admission reserve, or fewer --max-num-seqs"});
  }
}

void AddSlots(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  const v1::LoadInfo& load = seen.load;
  if (load.num_steps_short_of_slots() == 0) return;
  const std::string what = absl::StrCat(
      "slots full: in ", FormatCount(static_cast<int64_t>(load.num_steps_short_of_slots())),
      " steps requests waited for one of ", seen.now.max_num_seqs(),
      " (max_num_seqs), while the pool was at most ", Percent(PeakShare(load)), " in use");
  if (seen.now.max_num_seqs() < seen.sealed.max_num_seqs()) {
    findings.push_back(
        {what, absl::StrCat("bulkhead limits --max-num-seqs ", seen.sealed.max_num_seqs(),
                            " (an operator tightened it)")});
  } else if (HoldsAllSequences(seen.ranks)) {
    findings.push_back({what, absl::StrCat("--max-num-seqs ", 2 * seen.now.max_num_seqs(),
                                           " (the KV cache grows with it)")});
  } else if (PeakShare(load) >= kFullShare) {
    findings.push_back({what, LargerPool(seen)});
  } else {
    const double room = PeakShare(load) > 0 ? kFullShare / PeakShare(load) : 2;
    const auto more = static_cast<int64_t>(seen.now.max_num_seqs() * std::clamp(room, 1.0, 8.0));
    findings.push_back(
        {what, absl::StrCat("--max-num-seqs ", std::max<int64_t>(more, seen.now.max_num_seqs() + 1),
                            " (at the lengths seen so far the pool has room for them)")});
  }
}

// Whether --max-model-len can be larger, by the model's config.json.
std::string LongerLength(const ServerSnapshot& seen) {
  const auto config = nlohmann::json::parse(seen.model.config_json(), nullptr, false);
  int64_t longest = 0;
  for (const auto* place : {"/max_position_embeddings", "/text_config/max_position_embeddings"}) {
    const nlohmann::json::json_pointer pointer(place);
    if (!config.is_object() || !config.contains(pointer)) continue;
    if (config[pointer].is_number_unsigned()) longest = config[pointer].get<int64_t>();
  }
  if (longest == 0) return "--max-model-len, where the model allows more";
  return longest > seen.sealed.max_model_len()
             ? absl::StrCat("--max-model-len, up to the model's ", longest)
             : absl::StrCat("shorter prompts: the model takes at most ", longest, " tokens");
}

void AddRefusals(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  if (const uint64_t full = ErrorsOf(seen.load, "QUEUE_FULL"); full > 0) {
    const bool tightened = seen.now.max_num_queued_reqs() < seen.sealed.max_num_queued_reqs();
    findings.push_back(
        {absl::StrCat(full, " requests were refused because the queue was full (QUEUE_FULL)"),
         tightened ? absl::StrCat("bulkhead limits --max-num-queued-reqs ",
                                  seen.sealed.max_num_queued_reqs(), " (an operator tightened it)")
                   : "send less at once, or --max-num-queued-reqs: a longer queue makes nothing "
                     "faster"});
  }
  if (const uint64_t longer = ErrorsOf(seen.load, "PROMPT_TOO_LONG"); longer > 0) {
    const bool tightened = seen.now.max_model_len() < seen.sealed.max_model_len();
    findings.push_back(
        {absl::StrCat(longer, longer == 1 ? " prompt was" : " prompts were",
                      " longer than max_model_len ", seen.now.max_model_len(), " leaves room for"),
         tightened ? absl::StrCat("bulkhead limits --max-model-len ", seen.sealed.max_model_len(),
                                  " (an operator tightened it)")
                   : LongerLength(seen)});
  }
}

// The rank that the others wait for, if that costs them time.
void AddSlowRank(const ServerSnapshot& seen, std::vector<Finding>& findings) {
  const auto compute_s = [](const v1::RankSteps& steps) {
    return steps.decode_compute_s() + steps.prefill_compute_s();
  };
  const auto& ranks = seen.load.rank_steps();
  double sum_s = 0;
  int slowest = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    sum_s += compute_s(ranks[rank]);
    if (compute_s(ranks[rank]) > compute_s(ranks[slowest])) slowest = rank;
  }
  const bool is_enough =
      ranks.size() > 1 && ranks[0].decode_steps() + ranks[0].prefill_steps() >= kMinSteps;
  if (!is_enough || sum_s <= 0) return;
  const double excess = compute_s(ranks[slowest]) / (sum_s / ranks.size()) - 1;
  if (excess < kSlowExcess) return;
  const std::string host =
      slowest < seen.ranks.ranks_size() ? seen.ranks.ranks(slowest).host() : "";
  findings.push_back(
      {absl::StrCat("rank ", slowest, host.empty() ? "" : absl::StrCat(" (host ", host, ")"),
                    " computes ", Percent(excess), " longer than the ranks' mean",
                    slowest == 0 ? ", sampling included" : "",
                    ", and the others wait for it in every step"),
       "see what else runs on its cores, and whether all ranks have equally many (--threads)"});
}

uint64_t BytesOf(const v1::RankRow& row, std::initializer_list<const char*> categories) {
  uint64_t bytes = 0;
  for (const v1::Arena& arena : row.arenas()) {
    if (std::find(categories.begin(), categories.end(), arena.term()) != categories.end())
      bytes += arena.bytes();
  }
  return bytes;
}

std::string OfLimit(uint64_t value, uint64_t limit) {
  return absl::StrCat(FormatCount(static_cast<int64_t>(value)), " of ",
                      FormatCount(static_cast<int64_t>(limit)));
}

}  // namespace

bool HoldsAllSequences(const v1::RankTable& ranks) {
  return absl::StartsWith(KvRuleOf(ranks), "max_num_seqs x ");
}

HostGrowth HostGrowthOf(const v1::LoadInfo& load) {
  const uint64_t at_ready = load.host().resident_bytes_at_ready();
  if (at_ready == 0) return {};
  const uint64_t peak = std::max(load.resident_bytes(), load.host().resident_bytes_peak());
  return {Less(load.resident_bytes(), at_ready), Less(peak, at_ready)};
}

uint64_t HostGrowthBytes(const v1::HostBudget& host) {
  uint64_t standing = 0;  // already at READY
  for (const v1::Arena& part : host.terms()) {
    for (const char* name : {"prefix_cache", "tokenizer", "heap_slack"}) {
      if (part.term() == name) standing += part.bytes();
    }
  }
  return Less(host.total_bytes(), standing);
}

std::vector<Finding> Diagnose(const ServerSnapshot& seen) {
  std::vector<Finding> findings;
  AddBugs(seen, findings);
  AddHost(seen, findings);
  // The more frequent cause first.
  if (seen.load.num_steps_short_of_slots() > seen.load.num_steps_short_of_blocks()) {
    AddSlots(seen, findings);
    AddPool(seen, findings);
  } else {
    AddPool(seen, findings);
    AddSlots(seen, findings);
  }
  AddRefusals(seen, findings);
  AddSlowRank(seen, findings);
  return findings;
}

std::string ConsumersTable(const v1::RankTable& ranks, const ServerSnapshot* live) {
  const v1::RankRow& row = ranks.ranks(static_cast<int>(ranks.binding_rank()));
  const auto line = [&](const char* name, const char* terms, uint64_t bytes, std::string now,
                        std::string peak, const char* setting) {
    const double share = row.total_bytes() == 0
                             ? 0
                             : static_cast<double>(bytes) / static_cast<double>(row.total_bytes());
    std::vector<std::string> cells = {name, terms, FormatBytes(static_cast<int64_t>(bytes)),
                                      Percent(share)};
    if (live != nullptr) cells.insert(cells.end(), {std::move(now), std::move(peak)});
    cells.push_back(setting);
    return cells;
  };
  v1::LoadInfo load;
  v1::Limits limits;
  if (live != nullptr) {
    load = live->load;
    limits = live->now;
  }
  std::vector<std::string> head = {"consumer", "terms", "bytes", "of rank"};
  if (live != nullptr) head.insert(head.end(), {"now", "peak"});
  head.push_back("its setting");
  std::vector<std::vector<std::string>> rows = {
      head,
      line("static", "weights", BytesOf(row, {"weights"}), "-", "-", "--weight-dtype, more ranks"),
      line("KV", "kv", BytesOf(row, {"kv"}),
           OfLimit(load.num_kv_blocks_used(), load.num_kv_blocks()),
           OfLimit(load.num_kv_blocks_used_peak(), load.num_kv_blocks()),
           "--kv-cache-dtype, a KV rule"),
      line("concurrency", "block_tables, logits, state",
           BytesOf(row, {"block_tables", "logits", "state"}),
           OfLimit(load.num_requests_running(), limits.max_num_seqs()),
           OfLimit(load.num_requests_running_peak(), limits.max_num_seqs()), "--max-num-seqs"),
      line("context", "activations, communication", BytesOf(row, {"activations", "communication"}),
           "-", OfLimit(load.longest_request_tokens(), limits.max_model_len()),
           "--max-num-batched-tokens"),
      line("overhead", "workspace, reserve, others",
           BytesOf(row, {"workspace"}) + row.reserve_bytes() + row.others_bytes(), "-", "-",
           row.reserve_bytes() == 0 ? "--max-num-batched-tokens"
                                    : "--max-num-batched-tokens, --reserve"),
  };
  if (const uint64_t draft = BytesOf(row, {"draft_model"}); draft > 0) {
    rows.push_back(line("draft model", "draft_model", draft, "-", "-", "--speculative-config"));
  }
  if (ranks.has_host()) {
    std::vector<std::string> host = {"host", "what rank 0 holds for clients",
                                     FormatBytes(static_cast<int64_t>(ranks.host().total_bytes())),
                                     "-"};
    if (live != nullptr) {
      const HostGrowth grown = HostGrowthOf(load);
      host.push_back(FormatBytes(static_cast<int64_t>(grown.now)));
      host.push_back(FormatBytes(static_cast<int64_t>(grown.peak)));
    }
    host.push_back("--host-memory");
    rows.push_back(std::move(host));
  }
  return TextTable(rows);
}

}  // namespace bulkhead
