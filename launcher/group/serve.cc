#include "launcher/group/serve.h"

#include <sys/resource.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/lost_rank.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/exit_status.h"
#include "launcher/group/config_text.h"
#include "launcher/group/group_control.h"
#include "launcher/group/host_start.h"
#include "launcher/group/provenance.h"
#include "launcher/group/rank_process.h"
#include "launcher/group/request_rules.h"
#include "launcher/group/security.h"
#include "launcher/group/startup.h"
#include "launcher/group/tokenizer_archive.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/report.h"
#include "launcher/version.h"
#include "memory/host_memory.h"
#include "memory/kv_format_name.h"
#include "runtime/chat/chat_template.h"
#include "runtime/service/grpc/server.h"
#include "runtime/service/http/http_server.h"
#include "runtime/service/service_core.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kFlush = absl::Milliseconds(500);
// Returns as soon as every client is notified: takes this long only for clients that do not read.
constexpr absl::Duration kFlushLimit = absl::Milliseconds(1500);

ServingParts PartsOf(const ServeOptions& options, const RankEngine& engine,
                     Coordinator& coordinator, EngineControl& control,
                     std::shared_ptr<KvEventLog> kv_events) {
  const ModelConfig& model = engine.source.config.model;
  const ModelLimits& limits = engine.limits;
  ServingParts parts;
  parts.inbox = &coordinator;
  parts.control = &control;
  parts.kv_events = std::move(kv_events);
  parts.rules = RequestRulesOf(engine, options.engine);
  std::vector<std::string>& names = parts.rules.served_model_names;
  if (!options.served_model_names.empty()) names = options.served_model_names;
  v1::ServerInfo& server = parts.server_info;
  server.set_version(std::string(Version()));
  server.set_tensor_parallel_size(engine.topology.size);
  server.set_max_num_seqs(limits.max_num_seqs);
  server.set_max_model_len(limits.max_model_len);
  server.set_max_num_batched_tokens(limits.max_num_batched_tokens);
  server.set_max_num_queued_reqs(engine.host->max_num_queued_reqs);
  server.set_block_size(limits.block_tokens);
  server.set_num_kv_blocks(limits.num_kv_blocks);
  server.set_kv_cache_dtype(std::string(KvFormatName(limits.kv_format)));
  server.set_device(engine.device->name());
  for (auto& [key, value] : Provenance()) (*server.mutable_provenance())[key] = value;
  for (const ClockOffset& clock : engine.clocks) {
    v1::ClockOffset& offset = *server.add_clock_offsets();
    offset.set_offset_us(clock.offset_us);
    offset.set_error_us(clock.error_us);
  }
  v1::ModelInfo& info = parts.model_info;
  info.set_served_model_name(names.front());
  for (const ServedAdapter& adapter : parts.rules.adapters) info.add_lora_modules(adapter.name);
  info.set_architecture(model.architecture);
  info.set_vocab_size(model.vocab_size);
  info.set_max_model_len(limits.max_model_len);
  info.set_dtype(WeightFormatsText(limits.weights));
  info.set_supports_text(engine.tokenizer != nullptr);
  for (const int id : model.eos_token_ids) info.add_eos_token_ids(id);
  const ConfigText config = ReadConfigText(engine.source.dir);
  info.set_config_json(config.json);
  info.set_config_sha256(config.sha256);
  parts.tokenizer_archive = MakeTokenizerArchive(engine.source.dir);
  if (!parts.tokenizer_archive.ok() && engine.tokenizer != nullptr) {
    BH_LOG(kWarning) << "gateways cannot get the tokenizer: "
                     << parts.tokenizer_archive.status().message();
  }
  parts.rank_table = RankTableOf(ReportOf(engine.capacity, {}, engine.facts()));
  parts.limits = engine.capacity.limits;
  return parts;
}

// The file of --report, if requested. Any thread.
class ServedReport {
 public:
  ServedReport(const ServeOptions& options, const RankEngine& engine)
      : options_(options), engine_(engine), process_(ThisProcess(engine.topology.hosts[0])) {}
  // A final state is never overwritten. A failure to write must not stop the server.
  void Write(const std::string& state, absl::string_view lost = "") {
    const absl::MutexLock lock(&mutex_);
    if (!options_.report.has_value() || has_end_) return;
    has_end_ = state != "serving";
    v1::Report report = ReportOf(engine_.capacity, {}, engine_.facts());
    report.set_state(state);
    if (!lost.empty()) report.set_lost(std::string(lost));
    *report.mutable_process() = process_;
    const absl::Status status = WriteReport(*options_.report, report);
    if (!status.ok()) BH_LOG(kWarning) << status.message();
  }

 private:
  const ServeOptions& options_;
  const RankEngine& engine_;
  const v1::ServedProcess process_;
  absl::Mutex mutex_;
  bool has_end_ ABSL_GUARDED_BY(mutex_) = false;
};

// If the model's own template cannot be used, chat requests are told why; a given one must be
// usable.
absl::StatusOr<ChatsOr> ChatsOf(const ServeOptions& options, const RankEngine& engine) {
  absl::StatusOr<ChatTemplate> read = LoadChatTemplate(engine.source.dir, options.chat_template);
  if (!read.ok() && !options.chat_template.empty()) {
    return WithExitCode(absl::InvalidArgumentError(read.status().message()), ExitCode::kUsage);
  }
  if (!read.ok()) {
    if (!absl::IsNotFound(read.status()))
      BH_LOG(kWarning) << "no chats: " << read.status().message();
    return ChatsOr(NoChats(read.status().message()));
  }
  absl::StatusOr<ChatParts> parts =
      MakeChatParts(*std::move(read), options.tool_call_parser, options.reasoning_parser);
  if (!parts.ok()) return WithExitCode(parts.status(), ExitCode::kUsage);
  return ChatsOr(std::make_shared<const ChatParts>(*std::move(parts)));
}

// --http-port and --metrics-port; null if there is none.
struct HttpServers {
  std::unique_ptr<HttpServer> api;
  std::unique_ptr<HttpServer> metrics;

  std::string Text() const {
    return absl::StrCat(api == nullptr ? "" : absl::StrCat(" http=", api->target()),
                        metrics == nullptr ? "" : absl::StrCat(" metrics=", metrics->target()));
  }
  void Shutdown() {
    if (api != nullptr) api->Shutdown(kFlush);
    if (metrics != nullptr) metrics->Shutdown(absl::ZeroDuration());
  }
};

absl::StatusOr<HttpServers> StartHttp(const ServeOptions& options, const RankEngine& engine,
                                      ServiceCore* service) {
  HttpServers https;
  HttpServer::Options http = {.host = options.host,
                              .allowed_origins = options.security.allowed_origins};
  const bool has_chat_flags = !options.chat_template.empty() ||
                              options.tool_call_parser != "auto" ||
                              options.reasoning_parser != "auto";
  if (options.http_port.has_value() || has_chat_flags) {  // checked even without a port
    BH_ASSIGN_OR_RETURN(http.chats, ChatsOf(options, engine));
  }
  if (!options.metrics_port.has_value() && !options.http_port.has_value()) return https;
  BH_ASSIGN_OR_RETURN(http.tls, LoadTls(options.security, kAlpnHttp1));
  if (options.metrics_port.has_value()) {
    http.port = *options.metrics_port;
    http.metrics_only = true;
    BH_ASSIGN_OR_RETURN(https.metrics, HttpServer::Start(http, service));
  }
  if (options.http_port.has_value()) {
    http.port = *options.http_port;
    http.metrics_only = false;
    BH_ASSIGN_OR_RETURN(https.api, HttpServer::Start(http, service));
  }
  return https;
}

// Rank 0's part, from READY to the last stream.
void ServeRequests(const ServeOptions& options, RankProcess& process, RankEngine& engine,
                   ServiceCore& service, GrpcServer& server, HttpServers& https, absl::Time begin) {
  Coordinator::Options coordinator_options = CoordinatorOptions(
      engine, SchedulerLimitsOf(engine, options.engine, engine.host->max_num_queued_reqs));
  const absl::Duration usual_itl = engine.driver == nullptr ? kCpuTargetItl : absl::ZeroDuration();
  coordinator_options.step_target = {engine.step_limits.estimate.value_or(StepEstimate{}),
                                     options.target_itl.value_or(usual_itl)};
  coordinator_options.log_requests = options.log_requests;
  coordinator_options.unsent_answers = std::bind_front(&OpenCalls::WaitForAdmitted, &service.calls);
  if (options.enable_kv_cache_events)
    coordinator_options.kv_events = std::make_shared<KvEventLog>(engine.limits.block_tokens);
  Coordinator coordinator(coordinator_options);
  RankFigures figures;
  RankStepStats board(engine.topology.size);
  InstrumentedStepRunner runner = InstrumentedStepRunnerOf(engine, figures, &board);
  GroupControl control(coordinator, board, service.state, engine, options.drain_timeout);
  ServedReport report(options, engine);
  process.SetEnding({.fail =
                         [&](const absl::Status& why) {
                           service.SetLost(why, LostRankOf(why));
                           coordinator.Fail(why);
                           report.Write("lost", why.message());
                         },
                     .flush = [&] { server.FlushAndWait(kFlushLimit); }});
  coordinator.SetServing();
  service.SetReady(PartsOf(options, engine, coordinator, control, coordinator_options.kv_events));
  CheckHeap(engine);
  LogReport(engine);
  BH_LOG(kVerbose) << HostText(*engine.host);
  BH_LOG(kVerbose) << "ready in "
                   << absl::FormatDuration(absl::Trunc(absl::Now() - begin, absl::Milliseconds(1)));
  report.Write("serving");
  process.SetDrain(
      [&] { control.BeginDrain(std::nullopt, {}); });  // a reader of READY may drain at once
  const absl::Status said = PrintLine(absl::StrCat(
      "READY grpc=", server.target(), " tp=", engine.topology.size,
      " max_num_seqs=", engine.limits.max_num_seqs, " max_model_len=", engine.limits.max_model_len,
      " host=", engine.topology.hosts[0], " control=", server.control_target(), https.Text()));
  if (!said.ok()) BH_LOG(kWarning) << "writing READY failed: " << said.message();
  process.RunSteps(runner, &coordinator);
  process.SetDrain(nullptr);
  server.Shutdown(kFlush);
  https.Shutdown();
  process.SetEnding({});
  report.Write("ended");
}

// To the maximum: every client is a file descriptor, and gRPC does not survive running out.
absl::Status RaiseFileLimit() {
  constexpr rlim_t kMinDescriptors = 64;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= kMinDescriptors) return absl::OkStatus();
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat(
                          "the limit of open files is ", limit.rlim_max, ", and a server needs ",
                          kMinDescriptors, "; raise ulimit -n")),
                      ExitCode::kGroupNotUp);
}

absl::Status ServeOnGroup(const ServeOptions& options, RankProcess& process) {
  const absl::Time begin = absl::Now();
  const bool coordinator = process.group().exchange().topology().coordinator();
  std::unique_ptr<ServiceCore> service;
  std::unique_ptr<GrpcServer> server;
  HttpServers https;
  const auto bind = [&](const RankEngine& engine) -> absl::Status {
    if (!coordinator) return absl::OkStatus();
    if (options.report.has_value()) BH_RETURN_IF_ERROR(CheckCanWrite("--report", *options.report));
    BH_ASSIGN_OR_RETURN(AccessControl access, ReadAccess(options));
    service = std::make_unique<ServiceCore>(engine.host->quotas, ResidentBytes, std::move(access));
    GrpcServer::Options grpc = {
        .host = options.host, .port = options.port, .control_port = options.control_port};
    BH_ASSIGN_OR_RETURN(grpc.tls, LoadTls(options.security, kAlpnHttp2));
    BH_ASSIGN_OR_RETURN(server, GrpcServer::Start(grpc, service.get()));
    BH_ASSIGN_OR_RETURN(https, StartHttp(options, engine, service.get()));
    BH_LOG(kVerbose) << "listening on grpc=" << server->target() << https.Text()
                     << "; not serving until the weights are loaded";
    return absl::OkStatus();
  };
  process.DrainMayEndStart();
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<RankEngine> engine,
                      StartEngine(process.options(), process.group(), &options, bind));
  BH_RETURN_IF_ERROR(process.StartIsOver());
  process.SetStepLimits(engine->step_limits);
  if (coordinator) {
    ServeRequests(options, process, *engine, *service, *server, https, begin);
  } else {
    RankFigures figures;
    InstrumentedStepRunner runner = InstrumentedStepRunnerOf(*engine, figures, nullptr);
    process.RunSteps(runner, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServe(const ServeOptions& options, pid_t parent) {
  if (absl::Status raised = RaiseFileLimit(); !raised.ok()) {
    ExitUnjoinedRankWith(raised);
    return raised;
  }
  KeepHeapSmall();
  return RunRankProcess(
      options.engine, [&](RankProcess& process) { return ServeOnGroup(options, process); }, parent);
}

}  // namespace bulkhead
