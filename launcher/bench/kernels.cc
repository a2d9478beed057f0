#include "launcher/bench/kernels.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/bench/kernels_bench.h"
#include "launcher/exit_status.h"
#include "launcher/group/rank_life.h"
#include "launcher/group/startup.h"
#include "launcher/wire.h"
#include "memory/exit_code.h"
#include "memory/log.h"
#include "memory/status.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLeastSumBytes = 4 << 10;
constexpr int64_t kMostSumBytes = 8 << 20;
constexpr int64_t kSumTurnBytes = 64 << 20;

// The results of one rank: lines for people as they come, objects for programs.
class Results {
 public:
  explicit Results(bool prints) : prints_(prints) {}

  void Add(const KernelResult& result) {
    list_.push_back({{"name", result.name},
                     {"format", result.format},
                     {"activation", result.activation},
                     {"microseconds", result.seconds * 1e6},
                     {"gb_per_s", result.gb_per_s},
                     {"read_gb_per_s", result.read_gb_per_s},
                     {"share_of_read", result.share_of_read},
                     {"gop_per_s", result.gop_per_s},
                     {"peak_gop_per_s", result.peak_gop_per_s},
                     {"share_of_peak", result.share_of_peak}});
    if (!prints_) return;
    if (list_.size() == 1) {
      std::printf("%-30s %-9s %-5s %12s %22s %26s\n", "what", "format", "act", "us",
                  "GB/s of reading", "Gop/s of peak");
    }
    std::string peak = absl::StrFormat("%.0f", result.gop_per_s);
    if (result.peak_gop_per_s > 0) {
      absl::StrAppendFormat(&peak, " of %.0f %4.0f %%", result.peak_gop_per_s,
                            100 * result.share_of_peak);
    }
    std::printf("%-30s %-9s %-5s %12.1f %8.1f of %5.1f %4.0f %% %26s\n", result.name.c_str(),
                result.format.c_str(), result.activation.c_str(), result.seconds * 1e6,
                result.gb_per_s, result.read_gb_per_s, 100 * result.share_of_read, peak.c_str());
    std::fflush(stdout);
  }
  void AddSum(int64_t bytes, double seconds) {
    list_.push_back({{"name", absl::StrCat("all_reduce/", bytes)},
                     {"microseconds", seconds * 1e6},
                     {"gb_per_s", static_cast<double>(bytes) / seconds * 1e-9}});
    if (!prints_) return;
    std::printf("%-30s %-9s %-5s %12.1f %8.2f\n", absl::StrCat("all_reduce/", bytes).c_str(),
                "float32", "", seconds * 1e6, static_cast<double>(bytes) / seconds * 1e-9);
    std::fflush(stdout);
  }
  const ordered_json& list() const { return list_; }

 private:
  const bool prints_;
  ordered_json list_ = ordered_json::array();
};

// Medians of turns of sums, of every size a power of four apart.
absl::Status MeasureSums(const KernelsOptions& options, RankLife& life, Results& results) {
  const std::unique_ptr<Device> device = MakeDevice(DeviceBudget{.probed = true});
  MemoryLedger ledger(*device);
  const CommLimits limits{kMostSumBytes / 4, 0};
  ledger.Claim(Term::kCommunication,
               CommunicationBytes(limits, life.group().exchange().topology().size));
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm,
                      life.group().Connect(limits, ledger));
  const int64_t most = options.quick ? kLeastSumBytes : kMostSumBytes;
  for (int64_t bytes = kLeastSumBytes; bytes <= most; bytes *= 4) {
    if (!absl::StartsWith(absl::StrCat("all_reduce/", bytes), options.filter)) continue;
    const int64_t calls = options.quick ? 4 : std::clamp<int64_t>(kSumTurnBytes / bytes, 8, 2000);
    std::vector<double> turns;
    for (int turn = 0; turn < (options.quick ? 3 : 11); ++turn) {
      const absl::Time begin = absl::Now();
      for (int64_t i = 0; i < calls; ++i) {
        const MatrixView term = comm->Term(1, bytes / 4);
        std::fill_n(term.F32(), bytes / 4, 1.0F);
        BH_RETURN_IF_ERROR(comm->AllReduceSum().status());
      }
      turns.push_back(absl::ToDoubleSeconds(absl::Now() - begin) / static_cast<double>(calls));
    }
    std::sort(turns.begin(), turns.end());
    results.AddSum(bytes, turns[turns.size() / 2]);
  }
  return absl::OkStatus();
}

absl::Status MeasureOnGroup(const KernelsOptions& options, RankLife& life) {
  GroupExchange& exchange = life.group().exchange();
  const absl::Duration timeout = options.engine.startup_timeout;
  BH_ASSIGN_OR_RETURN(const ThreadChoice threads,
                      ChooseThreads(options.engine.threads, exchange, timeout));
  const bool first = exchange.topology().coordinator();
  Results results(first && !options.json);
  KernelsBenchOptions bench;
  bench.num_threads = threads.num_threads;
  bench.isa = IsaNameOf(options.engine.cpu_isa);
  bench.filter = options.filter;
  bench.quick = options.quick;
  // Together: ranks of one host share its memory's bandwidth, as they do when they serve.
  BH_RETURN_IF_ERROR(RunPhase(exchange, "start", timeout, [] { return absl::OkStatus(); }));
  const absl::Status measured =
      MeasureKernels(bench, [&](const KernelResult& result) { results.Add(result); });
  if (!measured.ok()) return WithExitCode(measured, ExitCode::kUsage);
  if (exchange.topology().size > 1) BH_RETURN_IF_ERROR(MeasureSums(options, life, results));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange.AllGather(results.list().dump(), absl::InfiniteDuration()));
  if (!first || !options.json) return first ? FlushStandardOutput() : absl::OkStatus();
  ordered_json json = {{"bench", "kernels"}, {"threads", threads.num_threads}};
  ordered_json ranks = ordered_json::array();
  for (const std::string& one : all) ranks.push_back(ordered_json::parse(one, nullptr, false));
  json["ranks"] = std::move(ranks);
  std::cout << json.dump(2) << "\n";
  return FlushStandardOutput();
}

}  // namespace

absl::Status RunKernels(const KernelsOptions& options) {
  return LiveAsRank(options.engine, [&](RankLife& life) { return MeasureOnGroup(options, life); });
}

}  // namespace bulkhead
