#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/metrics/families.h"

namespace bulkhead {
namespace {

MetricLabels OfRank(int64_t rank, const char* key = "", const std::string& value = "") {
  MetricLabels labels = {{"rank", absl::StrCat(rank)}};
  if (*key != '\0') labels.emplace_back(key, value);
  return labels;
}

void AddMemory(const MetricsReading& reading, FamilyList& list) {
  const v1::RankTable& table = reading.parts->rank_table;
  list.Gauge("bulkhead_rank_info", "Where a rank runs; always 1");
  for (const v1::RankRow& rank : table.ranks()) {
    list.Add(
        1, {{"rank", absl::StrCat(rank.rank())}, {"host", rank.host()}, {"device", rank.device()}});
  }
  list.Gauge("bulkhead_rank_arena_bytes", "Bytes of a rank's arena; fixed at start");
  for (const v1::RankRow& rank : table.ranks()) {
    for (const v1::Arena& arena : rank.arenas()) {
      list.Add(arena.bytes(), OfRank(rank.rank(), "arena", arena.term()));
    }
  }
  list.Gauge("bulkhead_rank_total_bytes", "Memory of a rank's device, or its share of the host's");
  for (const v1::RankRow& rank : table.ranks()) list.Add(rank.total_bytes(), OfRank(rank.rank()));
  list.Gauge("bulkhead_rank_free_bytes",
             "What the plan leaves free of a rank's memory, besides its reserve");
  for (const v1::RankRow& rank : table.ranks()) list.Add(rank.free_bytes(), OfRank(rank.rank()));
  list.Gauge("bulkhead_rank_stranded_bytes",
             "KV that a rank could hold, were it not for the binding rank");
  for (const v1::RankRow& rank : table.ranks())
    list.Add(rank.stranded_bytes(), OfRank(rank.rank()));
  list.Gauge("bulkhead_binding_rank",
             "The rank, and as term its memory category, that limit the KV blocks")
      .Add(table.binding_rank(), {{"term", table.binding_term()}});
  const auto& devices = reading.load.device_memory();
  list.Gauge("bulkhead_rank_device_free_bytes",
             "Free memory of a rank's GPU, read every 10 s; none on CPUs");
  for (int i = 0; i < devices.size(); ++i) list.Add(devices[i].free_bytes(), OfRank(i));
  list.Gauge("bulkhead_rank_device_free_least_bytes", "The same, at its least since READY");
  for (int i = 0; i < devices.size(); ++i) list.Add(devices[i].free_bytes_least(), OfRank(i));
}

struct Phase {
  const char* name;
  uint64_t (v1::RankSteps::*steps)() const;
  double (v1::RankSteps::*compute_s)() const;
  double (v1::RankSteps::*comm_s)() const;
};

constexpr Phase kPhases[] = {{"decode", &v1::RankSteps::decode_steps,
                              &v1::RankSteps::decode_compute_s, &v1::RankSteps::decode_comm_s},
                             {"prefill", &v1::RankSteps::prefill_steps,
                              &v1::RankSteps::prefill_compute_s, &v1::RankSteps::prefill_comm_s}};

// Mean seconds per step by which the slowest rank computes longer than the fastest.
double Skew(const v1::LoadInfo& load, const Phase& phase) {
  std::optional<double> least;
  double most = 0;
  for (const v1::RankSteps& rank : load.rank_steps()) {
    const uint64_t steps = (rank.*phase.steps)();
    if (steps == 0) continue;
    const double mean = (rank.*phase.compute_s)() / static_cast<double>(steps);
    least = std::min(least.value_or(mean), mean);
    most = std::max(most, mean);
  }
  return most - least.value_or(most);
}

void AddSteps(const v1::LoadInfo& load, FamilyList& list) {
  const auto add = [&](auto value_of) {
    for (int i = 0; i < load.rank_steps_size(); ++i) {
      for (const Phase& phase : kPhases) {
        list.Add(value_of(load.rank_steps(i), phase), OfRank(i, "phase", phase.name));
      }
    }
  };
  list.Counter("bulkhead_rank_steps_total",
               "Steps of a rank, brought up to date every 32; decode: one token per sequence");
  add([](const v1::RankSteps& rank, const Phase& phase) {
    return static_cast<double>((rank.*phase.steps)());
  });
  list.Counter("bulkhead_rank_compute_seconds_total", "Of these, computing; 0 on GPUs");
  add([](const v1::RankSteps& rank, const Phase& phase) { return (rank.*phase.compute_s)(); });
  list.Counter("bulkhead_rank_comm_seconds_total",
               "Of these, in collectives, with waiting for other ranks; 0 on GPUs");
  add([](const v1::RankSteps& rank, const Phase& phase) { return (rank.*phase.comm_s)(); });
  list.Gauge("bulkhead_step_skew_seconds",
             "Mean seconds of a step that the slowest rank computes longer than the fastest");
  for (const Phase& phase : kPhases) list.Add(Skew(load, phase), {{"phase", phase.name}});
}

}  // namespace

void AddRankFamilies(const MetricsReading& reading, FamilyList& list) {
  list.SetCommonLabels({{"model_name", reading.model_name}});
  AddMemory(reading, list);
  AddSteps(reading.load, list);
}

}  // namespace bulkhead
