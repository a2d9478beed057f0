#include "launcher/bench/comm.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/arithmetic.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "bulkhead/internal/step_plan.pb.h"
#include "launcher/bench/collectives.h"
#include "launcher/bench/median.h"
#include "launcher/bench/raw_shm_baseline.h"
#include "launcher/group/provenance.h"
#include "launcher/group/rank_process.h"
#include "launcher/group/startup.h"
#include "launcher/planning/model_source.h"
#include "launcher/python_tool.h"
#include "launcher/version.h"
#include "launcher/wire.h"
#include "memory/ledger.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

constexpr int64_t kBytesPerCase = int64_t{128} << 20;
constexpr int kMinCalls = 16;
constexpr int kMaxCalls = 4000;
constexpr int kTurns = 8;         // times that ours and the bare loop alternate
constexpr int kCheckedCalls = 8;  // per case, before the clock runs
constexpr double kWarmUpSeconds = 0.3;
constexpr int64_t kPairLatencyBytes = 64;
constexpr int64_t kPairBandwidthBytes = int64_t{1} << 20;

// One collective at one size. Times in seconds.
struct CommCase {
  Collective collective = Collective::kAllReduce;
  int64_t bytes = 0;    // of the whole message: the sum, what is gathered, what is broadcast
  std::string message;  // what it is in a model: "hidden x 8"; empty: a size among others
  // For each call the time of the slowest rank.
  std::vector<double> call_s;
  // The same for a bare loop of two processes that adds as many bytes, in both ways of sharing the
  // work; empty if not measured.
  std::vector<double> bare_whole_s, bare_half_s;
};

// Only two ranks: a bare loop of a few bytes, and of many.
struct CommPair {
  int first = 0;
  int second = 0;
  double latency_s = 0;
  double bytes_per_s = 0;
};

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A plan of `num_seqs` decoding sequences, as sent over the control bus.
int64_t PlanBytes(int num_seqs) {
  internal::StepPlan plan;
  plan.set_seq(100000);
  plan.set_padded_tokens(num_seqs);
  for (int i = 0; i < num_seqs; ++i) {
    plan.add_slot(i);
    plan.add_num_tokens(1);
    plan.add_start_position(1000);
    plan.add_num_logits(1);
    plan.add_from_candidates(true);
    plan.add_token_ids(10000);
  }
  return static_cast<int64_t>(plan.ByteSizeLong());
}

// What is measured, the same list on every rank.
std::vector<CommCase> CasesOf(const CommOptions& options, const ModelConfig* model, int ranks) {
  std::vector<CommCase> cases;
  for (size_t i = 0; i < std::size(kCollectiveNames); ++i) {
    const auto collective = static_cast<Collective>(i);
    if (options.collective.has_value() && *options.collective != collective) continue;
    const int64_t unit = UnitBytes(collective, ranks);
    const auto add = [&](int64_t bytes, std::string message) {
      cases.push_back({collective, RoundUp(bytes, unit), std::move(message), {}, {}, {}});
    };
    for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) add(bytes, "");
    if (model == nullptr) continue;
    for (const int rows : {1, 8, 64, 512}) {
      if (collective == Collective::kAllReduce) {
        add(int64_t{4} * rows * model->hidden_size, absl::StrCat("hidden x ", rows));
      } else if (collective == Collective::kGather && rows <= 32) {
        add(int64_t{4} * rows * model->vocab_size, absl::StrCat("vocabulary x ", rows));
      } else if (collective == Collective::kBroadcast) {
        add(PlanBytes(rows), absl::StrCat("plan of rows x ", rows));
      }
    }
  }
  return cases;
}

class CommBench {
 public:
  CommBench(const CommOptions& options, Group& group)
      : options_(options),
        exchange_(group.exchange()),
        topology_(exchange_.topology()),
        group_(group) {}

  absl::Status Prepare(std::vector<CommCase> cases) {
    cases_ = std::move(cases);
    for (const CommCase& one : cases_) max_bytes_ = std::max(max_bytes_, one.bytes);
    if (options_.pairs) max_bytes_ = std::max(max_bytes_, kPairBandwidthBytes);
    device_ = MakeDevice(DeviceBudget{.probed = true});
    ledger_ = std::make_unique<MemoryLedger>(*device_);
    const CommLimits limits{max_bytes_ / 4, max_bytes_ / 4};
    ledger_->Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, topology_.size));
    BH_ASSIGN_OR_RETURN(comm_, group_.Connect(limits, *ledger_));
    pattern_ = std::make_unique<MessagePattern>(topology_.rank, max_bytes_ / 4);
    const bool bare = topology_.one_host() && (topology_.size == 2 || options_.pairs);
    if (!bare) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(
        SharedMemory memory,
        ShareBetweenProcesses(exchange_, RawShmBaseline::Bytes(topology_.size, max_bytes_),
                              options_.engine.startup_timeout));
    bare_ = std::make_unique<RawShmBaseline>(std::move(memory), topology_.size, max_bytes_);
    whole_.resize(max_bytes_ / 4);
    return absl::OkStatus();
  }

  absl::Status Measure() {
    BH_RETURN_IF_ERROR(WarmUp());
    for (CommCase& one : cases_) BH_RETURN_IF_ERROR(MeasureCase(one));
    if (!options_.pairs) return absl::OkStatus();
    for (int first = 0; first < topology_.size; ++first) {
      for (int second = first + 1; second < topology_.size; ++second) {
        BH_RETURN_IF_ERROR(MeasurePair(first, second));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<CommCase>& cases() const { return cases_; }
  const std::vector<CommPair>& pairs() const { return pairs_; }
  double shared_core_share() const {
    return turns_ == 0 ? 0 : static_cast<double>(shared_core_turns_) / turns_;
  }

 private:
  int CallsOf(int64_t bytes) const {
    if (options_.quick) return kMinCalls;
    return static_cast<int>(
        std::clamp<int64_t>(kBytesPerCase / std::max<int64_t>(bytes, 1), kMinCalls, kMaxCalls));
  }

  // Until the system has given each rank a core, if there are enough.
  absl::Status WarmUp() {
    const std::unique_ptr<MeasuredCollective> collective =
        MakeCollective(Collective::kAllReduce, 4, {group_, *comm_, *pattern_});
    const Stopwatch watch;
    while (!options_.quick) {
      for (int i = 0; i < kMaxCalls; ++i) BH_RETURN_IF_ERROR(collective->Call(i));
      const char* const mine = watch.Seconds() > kWarmUpSeconds ? "done" : "";
      BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          exchange_.AllGather(mine, absl::InfiniteDuration()));
      if (!all[0].empty()) break;
    }
    return absl::OkStatus();
  }

  // Each call's time on the slowest rank.
  absl::StatusOr<std::vector<double>> Slowest(const std::vector<double>& mine) {
    const absl::string_view bytes(reinterpret_cast<const char*>(mine.data()),
                                  mine.size() * sizeof(double));
    BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        exchange_.AllGather(bytes, absl::InfiniteDuration()));
    std::vector<double> slowest = mine;
    for (const std::string& text : all) {
      if (text.size() != bytes.size()) return absl::InternalError("ranks made unequal calls");
      for (size_t i = 0; i < slowest.size(); ++i) {
        double seconds = 0;
        std::memcpy(&seconds, text.data() + i * sizeof(double), sizeof(double));
        slowest[i] = std::max(slowest[i], seconds);
      }
    }
    return slowest;
  }

  absl::Status AgreeOn(const absl::Status& mine) {
    return Agree(exchange_, "checking answers", mine, options_.engine.startup_timeout);
  }

  absl::Status MeasureCase(CommCase& one) {
    const std::unique_ptr<MeasuredCollective> collective =
        MakeCollective(one.collective, one.bytes, {group_, *comm_, *pattern_});
    int64_t call = 0;
    absl::Status right;
    for (int i = 0; i < kCheckedCalls; ++i) {
      BH_RETURN_IF_ERROR(collective->Call(++call));
      right.Update(collective->Check(call));
    }
    BH_RETURN_IF_ERROR(AgreeOn(right));
    const bool with_bare =
        bare_ != nullptr && topology_.size == 2 && one.collective == Collective::kAllReduce;
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<double> times;
      for (int i = 0; i < CallsOf(one.bytes) / kTurns; ++i) {
        const Stopwatch watch;
        BH_RETURN_IF_ERROR(collective->Call(++call));
        times.push_back(watch.Seconds());
      }
      BH_RETURN_IF_ERROR(AgreeOn(collective->Check(call)));
      BH_RETURN_IF_ERROR(Append(times, one.call_s));
      BH_RETURN_IF_ERROR(RecordCores());
      if (!with_bare) continue;
      BH_RETURN_IF_ERROR(
          Append(BareTurn(one.bytes, RawShmBaseline::Split::kWhole), one.bare_whole_s));
      BH_RETURN_IF_ERROR(
          Append(BareTurn(one.bytes, RawShmBaseline::Split::kHalf), one.bare_half_s));
    }
    return absl::OkStatus();
  }

  absl::Status Append(const std::vector<double>& mine, std::vector<double>& all) {
    BH_ASSIGN_OR_RETURN(const std::vector<double> slowest, Slowest(mine));
    all.insert(all.end(), slowest.begin(), slowest.end());
    return absl::OkStatus();
  }

  // Ranks on one core take turns and would measure the system's scheduler.
  absl::Status RecordCores() {
    const std::string mine = absl::StrCat(topology_.hosts[topology_.rank], " ", sched_getcpu());
    BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        exchange_.AllGather(mine, absl::InfiniteDuration()));
    ++turns_;
    shared_core_turns_ += std::set<std::string>(all.begin(), all.end()).size() < all.size() ? 1 : 0;
    return absl::OkStatus();
  }

  std::vector<double> BareTurn(int64_t bytes, RawShmBaseline::Split split) {
    std::vector<double> times;
    const int peer = 1 - topology_.rank;
    for (int i = 0; i < CallsOf(bytes) / kTurns; ++i) times.push_back(BareCall(peer, bytes, split));
    return times;
  }

  double BareCall(int peer, int64_t bytes, RawShmBaseline::Split split) {
    const float* part = pattern_->Part(0);
    const Stopwatch watch;
    bare_->Sum(topology_.rank, peer, part, bytes / 4, split, whole_.data());
    return watch.Seconds();
  }

  // Two ranks have the machine for themselves; the others wait at the gather.
  absl::Status MeasurePair(int first, int second) {
    std::vector<double> seconds(2);
    const bool is_first = topology_.rank == first;
    BH_RETURN_IF_ERROR(AgreeOn(absl::OkStatus()));
    if (is_first || topology_.rank == second) {
      const int peer = is_first ? second : first;
      for (const bool small : {true, false}) {
        const int64_t bytes = small ? kPairLatencyBytes : kPairBandwidthBytes;
        std::vector<double> times;
        for (int i = 0; i < CallsOf(bytes); ++i) {
          times.push_back(BareCall(peer, bytes, RawShmBaseline::Split::kHalf));
        }
        seconds[small ? 0 : 1] = Median(times);
      }
    }
    BH_ASSIGN_OR_RETURN(const std::vector<double> slowest, Slowest(seconds));
    pairs_.push_back({first, second, slowest[0], kPairBandwidthBytes / slowest[1]});
    return absl::OkStatus();
  }

  const CommOptions& options_;
  GroupExchange& exchange_;
  const RankTopology& topology_;
  Group& group_;
  std::vector<CommCase> cases_;
  std::vector<CommPair> pairs_;
  int turns_ = 0;
  int shared_core_turns_ = 0;
  int64_t max_bytes_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryLedger> ledger_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<MessagePattern> pattern_;
  std::unique_ptr<RawShmBaseline> bare_;  // null where it cannot be
  std::vector<float> whole_;
};

std::string MeasuredJson(const CommOptions& options, const RankTopology& topology,
                         const CommBench& bench) {
  nlohmann::ordered_json json = {{"bench", "comm"},
                                 {"version", Version()},
                                 {"date", DateText()},
                                 {"cpu", CpuName()},
                                 {"model", options.engine.model},
                                 {"tensor_parallel_size", topology.size},
                                 {"hosts", topology.hosts},
                                 {"may_spin", topology.local_size <= topology.local_cores},
                                 {"shared_core_share", bench.shared_core_share()},
                                 {"cases", nlohmann::ordered_json::array()},
                                 {"pairs", nlohmann::ordered_json::array()}};
  for (const CommCase& one : bench.cases()) {
    json["cases"].push_back({{"collective", kCollectiveNames[static_cast<int>(one.collective)]},
                             {"bytes", one.bytes},
                             {"message", one.message},
                             {"call_s", one.call_s},
                             {"bare_whole_s", one.bare_whole_s},
                             {"bare_half_s", one.bare_half_s}});
  }
  for (const CommPair& pair : bench.pairs()) {
    json["pairs"].push_back({{"ranks", {pair.first, pair.second}},
                             {"latency_s", pair.latency_s},
                             {"bytes_per_s", pair.bytes_per_s}});
  }
  return json.dump();
}

// Equal on all ranks, as the topology is.
absl::Status CheckGroup(const CommOptions& options, const RankTopology& topology) {
  absl::Status refusal;
  if (topology.size == 1) {
    refusal = absl::FailedPreconditionError(
        "bench comm measures between ranks and this group has one; start it with 'mpirun -n 2 "
        "bulkhead bench comm', or with srun -n 2 --mpi=pmix");
  } else if (options.pairs && !topology.one_host()) {
    refusal = absl::UnimplementedError(
        "--pairs measures through shared memory, and this group spans several hosts; leave it "
        "out, or run on one host");
  }
  return MarkAgreed(WithExitCode(refusal, ExitCode::kGroupNotUp));
}

// `measured`: on rank 0, what the Python tool reads.
absl::Status MeasureOnGroup(const CommOptions& options, RankProcess& life, std::string& measured) {
  GroupExchange& exchange = life.group().exchange();
  const RankTopology& topology = exchange.topology();
  BH_RETURN_IF_ERROR(CheckGroup(options, topology));
  const EngineOptions& engine = life.options();
  std::vector<CommCase> cases;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "model", engine.startup_timeout, [&] {
    if (topology.coordinator()) BH_RETURN_IF_ERROR(CheckPythonTool());
    absl::StatusOr<ModelSource> source;
    if (!engine.model.empty()) {
      source = ReadModelSource(engine, Weights::kOptional);
      if (!source.ok()) return source.status();
    }
    cases = CasesOf(options, source.ok() ? &source->config.model : nullptr, topology.size);
    return absl::OkStatus();
  }));
  CommBench bench(options, life.group());
  BH_RETURN_IF_ERROR(bench.Prepare(std::move(cases)));
  life.StartUpEnds();
  BH_RETURN_IF_ERROR(bench.Measure());
  if (topology.coordinator()) measured = MeasuredJson(options, topology, bench);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunComm(const CommOptions& options) {
  std::string measured;
  BH_RETURN_IF_ERROR(RunRankProcess(
      options.engine, [&](RankProcess& life) { return MeasureOnGroup(options, life, measured); }));
  if (measured.empty()) return absl::OkStatus();
  std::vector<std::string> args = {"comm"};
  if (options.json) args.emplace_back("--json");
  return BecomePythonTool(args, measured);
}

}  // namespace bulkhead
