// A rank whose coordinator schedules for a larger group than the sealed one:
//   faulty_coordinator blocks|sequences|tokens RUN-FLAGS...
// Every rank must refuse the plan before it touches its arenas. And a group whose last (or first)
// rank stops behind its last step, or stops or is killed while it leaves:
//   faulty_coordinator [first-]stops-at-the-end|[first-]stops-leaving|dies-leaving RUN-FLAGS...
// The others must name it.
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "launcher/exit_status.h"
#include "launcher/flags/options.h"
#include "launcher/group/rank_process.h"
#include "launcher/group/startup.h"
#include "launcher/process_environment.h"
#include "runtime/engine/coordinator.h"

namespace bulkhead {
namespace {

int g_signal_leaving = 0;  // to itself, in MPI_Finalize

class NoSink final : public RequestSink {
 public:
  void OnDelta(OutputDelta /*delta*/) override {}
  void OnEnd(RequestEnd /*end*/) override {}
};

SchedulerLimits Lie(const std::string& about, SchedulerLimits limits) {
  if (about == "blocks") limits.num_kv_blocks *= 4;
  if (about == "sequences") limits.max_num_seqs *= 4;
  if (about == "tokens") limits.max_num_batched_tokens *= 4;
  limits.prefix_caching = false;
  return limits;
}

absl::Status Live(const std::string& about, const EngineOptions& options, RankProcess& process) {
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<RankEngine> engine,
                      StartEngine(process.options(), process.group(), nullptr, nullptr));
  std::unique_ptr<Coordinator> coordinator;
  if (engine->topology.coordinator()) {
    coordinator = std::make_unique<Coordinator>(
        CoordinatorOptions(*engine, Lie(about, SchedulerLimitsOf(*engine, options, 1000))));
    coordinator->SetServing();
    for (int i = 0; i < 16; ++i) {
      Request request;
      request.request_id = absl::StrCat(i);
      request.prompt.assign(100, 3 + i);
      request.stopping.max_tokens = 100;
      request.stopping.ignore_eos = true;
      BH_RETURN_IF_ERROR(coordinator->Submit(std::move(request), std::make_shared<NoSink>()));
    }
    coordinator->BeginDrain(absl::InfiniteDuration());
  }
  process.RunSteps(*engine->runner, coordinator.get());
  absl::string_view fault = about;
  const int victim = absl::ConsumePrefix(&fault, "first-") ? 0 : engine->topology.size - 1;
  if (engine->topology.rank != victim) return absl::OkStatus();
  if (fault == "stops-at-the-end") raise(SIGSTOP);
  if (fault == "stops-leaving") g_signal_leaving = SIGSTOP;
  if (fault == "dies-leaving") g_signal_leaving = SIGKILL;
  return absl::OkStatus();
}

}  // namespace
}  // namespace bulkhead

// In front of the library's own, as MPI lets a program do.
extern "C" int PMPI_Finalize();
extern "C" int MPI_Finalize() {
  if (bulkhead::g_signal_leaving != 0) raise(bulkhead::g_signal_leaving);
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  bulkhead::SetProcessEnvironment();
  const std::string about = argc > 1 ? argv[1] : "";
  std::vector<std::string> args = {"run"};
  args.insert(args.end(), argv + 2, argv + argc);
  const auto command = bulkhead::ParseCommandLine(args);
  if (!command.ok()) return bulkhead::ExitRankWith(command.status());
  const bulkhead::EngineOptions& options = std::get<bulkhead::RunOptions>(*command).engine;
  return bulkhead::ExitRankWith(bulkhead::RunRankProcess(
      options,
      [&](bulkhead::RankProcess& process) { return bulkhead::Live(about, options, process); }));
}
