// The capacity report for people.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/device_budget.h"
#include "launcher/text_table.h"

namespace bulkhead {
namespace {

using Row = std::vector<std::string>;

// Whether ranks differ in NUMA nodes, or one has several.
bool HasNumaPlaces(const Capacity& capacity) {
  const std::string& first = capacity.ranks[0].budget.numa_nodes;
  return std::any_of(capacity.ranks.begin(), capacity.ranks.end(), [&](const RankCapacity& rank) {
    const std::string& nodes = rank.budget.numa_nodes;
    return nodes != first || absl::StrContains(nodes, ",");
  });
}

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

// Whether the limits, not a rank's memory, size the pool: more blocks would be unused.
bool HoldsAllSequences(const Capacity& capacity) {
  return absl::StartsWith(capacity.ranks[capacity.binding_rank].rule_text, "max_num_seqs x ");
}

// "KV cache: ..., limited by rank 1 on b (...); holds 12 sequences of max_model_len".
std::string KvText(const Capacity& capacity) {
  const RankCapacity& binding = capacity.ranks[capacity.binding_rank];
  const int max_num_seqs = capacity.limits.max_num_seqs;
  return absl::StrCat(
      "KV cache: ", FormatCount(capacity.limits.num_kv_blocks), " blocks of ",
      capacity.limits.block_tokens, " = ", FormatCount(capacity.limits.kv_tokens()),
      " tokens, limited by ",
      HoldsAllSequences(capacity) ? "max_num_seqs x max_model_len; least memory: " : "", "rank ",
      capacity.binding_rank,
      binding.budget.host.empty() ? "" : absl::StrCat(" on ", binding.budget.host), " (",
      binding.rule_text, "); holds ", FormatCount(capacity.full_sequences),
      capacity.full_sequences == 1 ? " sequence" : " sequences", " of max_model_len",
      capacity.full_sequences < max_num_seqs
          ? absl::StrCat(", fewer than max_num_seqs ", FormatCount(max_num_seqs), ": the rest wait")
          : "");
}

// Whether a rank has any bytes in this category.
bool Has(const Capacity& capacity, MemoryCategory category) {
  return std::any_of(capacity.ranks.begin(), capacity.ranks.end(), [&](const RankCapacity& rank) {
    return rank.arena_bytes[static_cast<int>(category)] > 0;
  });
}

// The memory of each sequence before its first token, if the model has states.
std::string StateText(const Capacity& capacity) {
  if (!Has(capacity, MemoryCategory::kState)) return "";
  const RankCapacity& binding = capacity.ranks[capacity.binding_rank];
  const int seqs = capacity.limits.max_num_seqs;
  return absl::StrCat(
      "state: ", FormatBytes(binding.arena_bytes[static_cast<int>(MemoryCategory::kState)] / seqs),
      " on rank ", capacity.binding_rank, " for each of max_num_seqs ", FormatCount(seqs),
      " sequences, however long they are, with what prefix caching keeps of them\n");
}

// The draft model's memory, part by part.
std::string DraftText(const Capacity& capacity) {
  if (!Has(capacity, MemoryCategory::kDraftModel)) return "";
  const RankCapacity& binding = capacity.ranks[capacity.binding_rank];
  std::vector<std::string> parts;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    if (binding.draft_bytes[i] == 0) continue;
    parts.push_back(absl::StrCat(MemoryCategoryName(static_cast<MemoryCategory>(i)), " ",
                                 FormatBytes(binding.draft_bytes[i])));
  }
  return absl::StrCat("draft model: on rank ", capacity.binding_rank, " ",
                      absl::StrJoin(parts, ", "),
                      capacity.fits ? "; its kv is a part of every block\n" : "\n");
}

// The blocks that sequences use if layers have windows.
std::string KvGroupsText(const Capacity& capacity) {
  const Limits& limits = capacity.limits;
  const int num_full = limits.num_full_kv_groups();
  const int num_windowed = limits.num_kv_groups() - num_full;
  if (num_windowed == 0) return "";
  int layers = 0;
  int windowed_layers = 0;
  for (const KvGroup& group : limits.kv_groups) {
    layers += group.num_layers;
    windowed_layers += group.window > 0 ? group.num_layers : 0;
  }
  const RankCapacity& binding = capacity.ranks[capacity.binding_rank];
  const auto groups = [](int count) {
    return absl::StrCat(" (", count, count == 1 ? " group)" : " groups)");
  };
  return absl::StrCat("KV groups: all tokens in ", layers - windowed_layers, " of ", layers,
                      " layers", groups(num_full), ", the last ",
                      FormatCount(limits.kv_groups.back().window), " in ", windowed_layers,
                      groups(num_windowed), "; on rank ", capacity.binding_rank,
                      " a sequence of max_model_len takes ",
                      FormatBytes(limits.BlocksFor(limits.max_model_len) * binding.kv_block_bytes),
                      " (", FormatBytes(limits.blocks_per_seq() * binding.kv_layers_bytes),
                      " if all layers kept all tokens), and steps in flight up to ",
                      FormatBytes(limits.step_blocks() * binding.kv_block_bytes), "\n");
}

std::string LimitsText(const Limits& limits) {
  return absl::StrCat("limits: max_num_seqs ", FormatCount(limits.max_num_seqs), ", max_model_len ",
                      FormatCount(limits.max_model_len), ", max_num_batched_tokens ",
                      FormatCount(limits.max_num_batched_tokens));
}

// A rank's host memory besides the arenas.
std::string RankHostText(const RankCapacity& rank) {
  std::string text;
  if (rank.host_bytes > 0) {
    absl::StrAppend(&text, "host memory of rank 0, in addition to its GPU's: ",
                    FormatBytes(rank.host_bytes), "\n");
  }
  if (rank.loading_bytes > 0) {
    absl::StrAppend(&text, "while weights load: ", FormatBytes(rank.loading_bytes), " of ",
                    rank.budget.on_cpu() ? "staging" : "host memory more", " on rank 0",
                    rank.budget.host_in_reserve() ? ", within its reserve" : "", "\n");
  }
  return text;
}

}  // namespace

std::string CapacityText(const Capacity& capacity) {
  return absl::StrCat(LimitsText(capacity.limits), "; ", KvText(capacity));
}

std::string CapacityTable(const Capacity& capacity) {
  static constexpr const char* kHeads[kNumMemoryCategories] = {
      "weights", "comm", "activations", "tables", "logits", "state", "workspace", "draft", "kv"};
  const auto is_shown = [&](int i) {
    const auto category = static_cast<MemoryCategory>(i);
    return (category != MemoryCategory::kState && category != MemoryCategory::kDraftModel) ||
           Has(capacity, category);
  };
  std::vector<Row> rows = {{"rank", "device", "total", "others", "reserve"}};
  const bool has_places = HasNumaPlaces(capacity);
  if (has_places) rows[0].insert(rows[0].begin() + 2, "NUMA");
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    if (is_shown(i)) rows[0].push_back(kHeads[i]);
  }
  rows[0].insert(rows[0].end(), {"blocks", "free", "least to start"});
  for (const RankCapacity& rank : capacity.ranks) {
    const DeviceBudget& budget = rank.budget;
    const bool binds = budget.rank == capacity.binding_rank;
    Row row = {absl::StrCat(budget.rank, binds ? " <" : ""),
               budget.host.empty() ? budget.device : absl::StrCat(budget.host, " ", budget.device),
               FormatBytes(budget.total_bytes), FormatBytes(budget.others_bytes),
               FormatBytes(budget.reserve_bytes)};
    if (has_places) row.insert(row.begin() + 2, budget.numa_nodes);
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      if (!is_shown(i)) continue;
      const bool marked = binds && static_cast<MemoryCategory>(i) == capacity.limiting_category;
      row.push_back(absl::StrCat(FormatBytes(rank.arena_bytes[i]), marked ? " *" : ""));
    }
    row.push_back(capacity.fits && rank.kv_block_bytes > 0 ? FormatCount(rank.own_blocks) : "-");
    row.push_back(capacity.fits ? FormatBytes(rank.free_bytes) : "-");
    row.push_back(rank.required_bytes > 0 ? FormatBytes(rank.required_bytes) : "-");
    rows.push_back(std::move(row));
  }
  std::string text = TextTable(rows);
  absl::StrAppend(&text, LimitsText(capacity.limits), "\n", StateText(capacity),
                  KvGroupsText(capacity), DraftText(capacity));
  absl::StrAppend(&text, RankHostText(capacity.ranks[0]));
  absl::StrAppend(&text, DriverText(capacity));
  if (!capacity.fits) return text;
  absl::StrAppend(&text, KvText(capacity), "\n");
  int64_t stranded = 0;
  for (const RankCapacity& rank : capacity.ranks) stranded += rank.stranded_bytes;
  if (stranded > 0) {
    absl::StrAppend(&text, "unused: ", FormatBytes(stranded),
                    " of KV that the other ranks could hold and rank ", capacity.binding_rank,
                    " cannot\n");
  }
  return text;
}

std::string DriverRangeText(const Capacity& capacity, const DriverRange& range) {
  const std::string kv =
      capacity.fits ? absl::StrCat("KV cache: ", FormatCount(capacity.limits.kv_tokens()), " to ",
                                   FormatCount(range.most_kv_tokens), " tokens, as libraries take ",
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
                                  " for clients on rank 0's host, in addition to the arenas: ");
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

std::string MoreRanksText(const ModelConfig& config, int size) {
  const std::string states =
      config.keeps_states()
          ? absl::StrCat("; states fall until there are ", config.delta.num_value_heads,
                         ", one for each value head of linear attention")
          : "";
  const std::string rest =
      absl::StrCat(states,
                   "; weights fall further, hidden-width activations, block tables, rank 0's "
                   "logits and workspace do not");
  if (const LatentConfig& latent = config.latent; config.has_latents()) {
    return absl::StrCat(
        "more ranks: KV bytes per token and rank stay as they are, latent attention "
        "caches one vector of ",
        latent.cached_dim(), " numbers (", latent.kv_rank, " + ", latent.rope_dim,
        ") a token and layer for all heads, and every rank has all of it", rest);
  }
  // For the kind of layers with more.
  const int num_kv_heads =
      std::max(config.num_key_value_heads, config.full_heads.num_key_value_heads);
  if (size >= num_kv_heads) {
    return absl::StrCat("more ranks: KV bytes per token and rank stay as they are, each of the ",
                        num_kv_heads, " KV heads has a rank of its own already", rest);
  }
  return absl::StrCat("more ranks: KV bytes per token and rank fall until there are ", num_kv_heads,
                      ", one for each KV head", rest);
}

}  // namespace bulkhead
