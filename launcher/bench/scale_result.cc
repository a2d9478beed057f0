#include "launcher/bench/scale_result.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/bench/json_fields.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;
using Pointer = ordered_json::json_pointer;

absl::Status Unexpected(absl::string_view what, absl::string_view text) {
  constexpr size_t kShown = 200;
  return absl::DataLossError(
      absl::StrCat(what, " printed something else than its JSON: '", text.substr(0, kShown), "'"));
}

bool HasAll(const ordered_json& json, std::initializer_list<const char*> pointers) {
  for (const char* pointer : pointers) {
    if (!json.contains(Pointer(pointer))) return false;
  }
  return true;
}

// `report` has what HasAll was asked for.
ScaleCapacity CapacityOf(const ordered_json& report) {
  ScaleCapacity capacity;
  capacity.fits = SwitchOf(report, "fits", false);
  capacity.kv_tokens = WholeOf(report, "kv_tokens", 0);
  capacity.binding_rank = static_cast<int>(WholeOf(report["binding"], "rank", 0));
  capacity.binding_term = TextOf(report["binding"], "term");
  return capacity;
}

std::string BindingText(const ScaleCapacity& capacity) {
  return absl::StrCat("rank ", capacity.binding_rank, ", ", capacity.binding_term);
}

std::string TokensText(const ScaleCapacity& capacity) {
  return capacity.fits ? FormatCount(capacity.kv_tokens) : "does not fit";
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

// How much faster than `base`, and per thread.
struct Gain {
  double speedup = 0;
  double efficiency = 0;
};
Gain GainOf(double rate, double base_rate, double threads, double base_threads) {
  Gain gain;
  if (base_rate <= 0) return gain;
  gain.speedup = rate / base_rate;
  gain.efficiency = gain.speedup / (threads / base_threads);
  return gain;
}

double ThreadsOf(const ScaleRow& row) {
  return static_cast<double>(row.ranks) * row.measured->threads;
}

const ScaleRow* BaseOf(const std::vector<ScaleRow>& rows) {
  for (const ScaleRow& row : rows) {
    if (row.measured.has_value()) return &row;
  }
  return nullptr;
}

std::string RatesTable(const std::vector<ScaleRow>& rows, const ScaleRow& base) {
  std::vector<std::vector<std::string>> table = {{"ranks", "threads", "batch", "input",
                                                  "prefill tokens/s", "speed-up", "efficiency",
                                                  "decode tokens/s", "speed-up", "efficiency"}};
  for (size_t i = 0; i < base.measured->cases.size(); ++i) {
    const ScaleRates& base_rates = base.measured->cases[i];
    for (const ScaleRow& row : rows) {
      if (!row.measured.has_value()) continue;
      const ScaleRates& rates = row.measured->cases[i];
      std::vector<std::string> cells = {
          absl::StrCat(row.ranks), absl::StrCat(row.measured->threads),
          absl::StrCat(rates.batch_size), absl::StrCat(rates.input_len)};
      for (const auto& [rate, base_rate] :
           {std::pair{rates.prefill_tokens_per_s, base_rates.prefill_tokens_per_s},
            std::pair{rates.decode_tokens_per_s, base_rates.decode_tokens_per_s}}) {
        const Gain gain = GainOf(rate, base_rate, ThreadsOf(row), ThreadsOf(base));
        cells.push_back(rate > 0 ? absl::StrFormat("%.1f", rate) : "-");
        cells.push_back(rate > 0 ? absl::StrFormat("%.2fx", gain.speedup) : "-");
        cells.push_back(rate > 0 ? Percent(gain.efficiency) : "-");
      }
      table.push_back(std::move(cells));
    }
  }
  return TextTable(table);
}

ordered_json CapacityJsonOf(const ScaleCapacity& capacity) {
  return {{"fits", capacity.fits},
          {"kv_tokens", capacity.kv_tokens},
          {"binding", {{"rank", capacity.binding_rank}, {"term", capacity.binding_term}}}};
}

ordered_json MeasuredJson(const ScaleRow& row, const ScaleRow& base) {
  const ScaleMeasured& measured = *row.measured;
  ordered_json json = CapacityJsonOf(measured.capacity);
  json["threads"] = measured.threads;
  json["decode_comm_share"] = measured.decode_comm_share;
  json["prefill_comm_share"] = measured.prefill_comm_share;
  json["slowest_rank"] = measured.slowest_rank;
  json["hosts"] = measured.hosts;
  json["slowest_excess"] = measured.slowest_excess;
  ordered_json cases = ordered_json::array();
  for (size_t i = 0; i < measured.cases.size(); ++i) {
    const ScaleRates& rates = measured.cases[i];
    const ScaleRates& base_rates = base.measured->cases[i];
    const Gain prefill = GainOf(rates.prefill_tokens_per_s, base_rates.prefill_tokens_per_s,
                                ThreadsOf(row), ThreadsOf(base));
    const Gain decode = GainOf(rates.decode_tokens_per_s, base_rates.decode_tokens_per_s,
                               ThreadsOf(row), ThreadsOf(base));
    cases.push_back({{"batch_size", rates.batch_size},
                     {"input_len", rates.input_len},
                     {"prefill_tokens_per_s", rates.prefill_tokens_per_s},
                     {"prefill_speedup", prefill.speedup},
                     {"prefill_efficiency", prefill.efficiency},
                     {"decode_tokens_per_s", rates.decode_tokens_per_s},
                     {"decode_speedup", decode.speedup},
                     {"decode_efficiency", decode.efficiency}});
  }
  json["cases"] = std::move(cases);
  return json;
}

}  // namespace

absl::StatusOr<ScaleCapacity> ParsePlanned(absl::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!HasAll(json, {"/fits", "/kv_tokens", "/binding/rank"})) return Unexpected("plan", text);
  return CapacityOf(json);
}

absl::StatusOr<ScaleMeasured> ParseMeasured(absl::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!HasAll(json, {"/cases", "/threads", "/memory/report/binding/rank", "/group/decode",
                     "/group/prefill", "/group/ranks/0"})) {
    return Unexpected("bench throughput", text);
  }
  ScaleMeasured measured;
  measured.threads = static_cast<int>(WholeOf(json, "threads", 1));
  measured.capacity = CapacityOf(json["memory"]["report"]);
  const ordered_json& group = json["group"];
  measured.decode_comm_share = NumberOf(group["decode"], "comm_share", 0);
  measured.prefill_comm_share = NumberOf(group["prefill"], "comm_share", 0);
  measured.slowest_rank = static_cast<int>(WholeOf(group["decode"], "slowest_rank", 0));
  measured.slowest_excess = NumberOf(group["decode"], "slowest_excess", 0);
  for (const ordered_json& rank : group["ranks"]) measured.hosts.push_back(TextOf(rank, "host"));
  for (const ordered_json& one : json["cases"]) {
    measured.cases.push_back({static_cast<int>(WholeOf(one, "batch_size", 0)),
                              static_cast<int>(WholeOf(one, "input_len", 0)),
                              NumberOf(one, "prefill_tokens_per_s", 0),
                              NumberOf(one, "decode_tokens_per_s", 0)});
  }
  return measured;
}

std::string ScaleTable(const std::vector<ScaleRow>& rows) {
  std::vector<std::vector<std::string>> table = {{"ranks", "KV tokens planned", "binds",
                                                  "KV tokens measured", "binds", "comm in decode",
                                                  "in prefill", "slowest rank", "where"}};
  for (const ScaleRow& row : rows) {
    std::vector<std::string> cells = {absl::StrCat(row.ranks), TokensText(row.planned),
                                      BindingText(row.planned)};
    if (row.measured.has_value()) {
      const ScaleMeasured& measured = *row.measured;
      cells.insert(cells.end(),
                   {TokensText(measured.capacity), BindingText(measured.capacity),
                    Percent(measured.decode_comm_share), Percent(measured.prefill_comm_share),
                    absl::StrCat(measured.slowest_rank, ", +", Percent(measured.slowest_excess)),
                    PlacementText(measured.hosts)});
    } else {
      cells.resize(table[0].size(), "-");
    }
    table.push_back(std::move(cells));
  }
  const ScaleRow* base = BaseOf(rows);
  if (base == nullptr) return TextTable(table);
  return absl::StrCat(RatesTable(rows, *base),
                      "efficiency: speed-up over the growth in threads of all ranks\n\n",
                      TextTable(table));
}

std::string ScaleJson(const std::vector<ScaleRow>& rows, const std::string& model,
                      const std::string& version, const std::string& date) {
  const ScaleRow* base = BaseOf(rows);
  ordered_json list = ordered_json::array();
  for (const ScaleRow& row : rows) {
    ordered_json entry = {{"tensor_parallel_size", row.ranks},
                          {"planned", CapacityJsonOf(row.planned)},
                          {"measured", nullptr}};
    if (row.measured.has_value()) entry["measured"] = MeasuredJson(row, *base);
    list.push_back(std::move(entry));
  }
  return ordered_json{{"bench", "scale"},
                      {"version", version},
                      {"date", date},
                      {"model", model},
                      {"sizes", std::move(list)}}
             .dump(2) +
         "\n";
}

}  // namespace bulkhead
