#include "launcher/bench/kernels.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "kernels/bench/gpu_bench.h"
#include "kernels/bench/kernels_bench.h"
#include "launcher/exit_status.h"
#include "launcher/group/gpu_start.h"
#include "launcher/group/rank_process.h"
#include "launcher/group/startup.h"
#include "launcher/wire.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

// The results of one rank: lines for people as they are measured, objects for programs.
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
      std::printf("%-30s %-9s %-8s %12s %22s %26s\n", "what", "format", "act", "us",
                  "GB/s of reading", "Gop/s of peak");
    }
    std::string peak = absl::StrFormat("%.0f", result.gop_per_s);
    if (result.peak_gop_per_s > 0) {
      absl::StrAppendFormat(&peak, " of %.0f %4.0f %%", result.peak_gop_per_s,
                            100 * result.share_of_peak);
    }
    std::printf("%-30s %-9s %-8s %12.1f %8.1f of %5.1f %4.0f %% %26s\n", result.name.c_str(),
                result.format.c_str(), result.activation.c_str(), result.seconds * 1e6,
                result.gb_per_s, result.read_gb_per_s, 100 * result.share_of_read, peak.c_str());
    std::fflush(stdout);
  }
  const ordered_json& list() const { return list_; }

 private:
  const bool prints_;
  ordered_json list_ = ordered_json::array();
};

absl::Status MeasureOnGroup(const KernelsOptions& options, RankProcess& life) {
  GroupExchange& exchange = life.group().exchange();
  const EngineOptions& engine_options = life.options();
  const absl::Duration timeout = engine_options.startup_timeout;
  RankEngine engine;
  BH_RETURN_IF_ERROR(OpenRankDevice(engine_options, life.group(), engine));
  BH_ASSIGN_OR_RETURN(const ThreadConfig threads,
                      PlaceAndCountThreads(engine_options, engine.choice.cuda, exchange));
  const bool first = exchange.topology().coordinator();
  Results results(first && !options.json);
  KernelsBenchOptions bench;
  bench.num_threads = threads.num_threads;
  bench.isa = IsaNameOf(engine_options.cpu_isa);
  bench.filter = options.filter;
  bench.quick = options.quick;
  // Concurrently: ranks of one host share its memory bandwidth, as when serving.
  BH_RETURN_IF_ERROR(RunPhase(exchange, "start", timeout, [] { return absl::OkStatus(); }));
  life.StartUpEnds();
  const auto add = [&](const KernelResult& result) { results.Add(result); };
  if (engine.driver == nullptr) {
    const absl::Status measured = MeasureKernels(bench, add);
    if (!measured.ok()) return WithExitCode(measured, ExitCode::kUsage);
  } else {
    BH_RETURN_IF_ERROR(MeasureGpuKernels(*engine.driver, engine.choice.gemm_library, bench, add));
  }
  if (results.list().empty()) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            "--filter ", options.filter, ": no measurement has a name that begins with this",
            options.quick ? " (--quick leaves large ones out)" : "",
            "; leave --filter out to see the names")),
        ExitCode::kUsage);
  }
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange.AllGather(results.list().dump(), absl::InfiniteDuration()));
  if (!first || !options.json) return first ? FlushStandardOutput() : absl::OkStatus();
  ordered_json json = {{"bench", "kernels"},
                       {"threads", threads.num_threads},
                       {"device", engine.driver == nullptr ? "cpu" : engine.choice.identity.name}};
  ordered_json ranks = ordered_json::array();
  for (const std::string& one : all) ranks.push_back(ordered_json::parse(one, nullptr, false));
  json["ranks"] = std::move(ranks);
  std::cout << json.dump(2) << "\n";
  return FlushStandardOutput();
}

}  // namespace

absl::Status RunKernels(const KernelsOptions& options) {
  return RunRankProcess(options.engine,
                        [&](RankProcess& life) { return MeasureOnGroup(options, life); });
}

}  // namespace bulkhead
