#include "launcher/group/rank_process.h"

#include <unistd.h>
#include <xmmintrin.h>
#include <csignal>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/fatal_end.h"
#include "base/log.h"
#include "base/lost_rank.h"
#include "base/status.h"
#include "comm/launch_environment.h"
#include "launcher/exit_status.h"
#include "launcher/group/group_flags.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kSilence = absl::Seconds(3);
constexpr unsigned kOrphanSeconds = 5;
constexpr absl::Duration kSameRequest = absl::Milliseconds(500);
// Time for rank 0 to tell its clients (launcher/group/serve.cc).
constexpr absl::Duration kLastAnswers = absl::Milliseconds(1500);
// Time for the other ranks to notice that rank 0 is lost: within a heartbeat of each other.
constexpr absl::Duration kOthersSee = absl::Milliseconds(300);
constexpr absl::Duration kLook = absl::Milliseconds(2);
// Time for all ranks to leave a start ended by a drain, while in uninterruptible work.
constexpr absl::Duration kLeaveStart = absl::Seconds(5);
// In a refused group rank 0 may search for a remedy while the others wait here.
constexpr absl::Duration kEndLimit = absl::Minutes(1);

// Exit code of a failure without one: the group is lost, or did not come up.
absl::Status WithGroupCode(absl::Status status) {
  if (ExitCodeOf(status) != ExitCode::kBug) return status;
  if (absl::IsUnavailable(status)) return WithExitCode(std::move(status), ExitCode::kRankLost);
  if (absl::IsDeadlineExceeded(status))
    return WithExitCode(std::move(status), ExitCode::kGroupNotUp);
  return status;
}

// Every rank arrives here before any leaves.
absl::Status MeetAtEnd(GroupExchange& exchange) {
  const absl::Status met = Agree(exchange, "end", absl::OkStatus(), kEndLimit);
  if (!absl::IsDeadlineExceeded(met)) return met;
  return WithExitCode(absl::UnavailableError(met.message()), ExitCode::kRankLost);
}

// mpirun gives the remaining ranks a second between one signal and the next, which ends early with
// every rank that exits: no other rank may exit while rank 0 still tells its clients.
void WaitForCoordinator(GroupLiveness& liveness, absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (!liveness.CoordinatorEnded() && absl::Now() < until) absl::SleepFor(kLook);
}

}  // namespace

RankProcess::RankProcess(const EngineOptions& options, pid_t parent)
    : options_(options),
      parent_(parent),
      signals_({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCONT},
               [this](const ReceivedSignal& signal) { OnSignal(signal); }) {
  // If the reader of our log goes away, the write fails, but the rank continues.
  std::signal(SIGPIPE, SIG_IGN);
}

absl::Status RankProcess::Join() {
  BH_ASSIGN_OR_RETURN(group_, JoinGroup(options_));
  const RankTopology& topology = group_->exchange().topology();
  SetLogRank(topology.rank, topology.size);
  SetFatalName(topology.NameOf(topology.rank, getpid()));
  joined_.store(group_.get());
  watchdog_ =
      std::make_unique<Watchdog>(group_->liveness(),
                                 WatchdogLimits{.silence = kSilence,
                                                .step = {},
                                                .name = topology.NameOf(topology.rank, getpid()),
                                                .rank = topology.LostRankAt(topology.rank),
                                                .warns = topology.coordinator()},
                                 [this](const absl::Status& why) { OnLost(why); });
  watchdog_->PhaseBegins("start-up", options_.startup_timeout);
  BH_RETURN_IF_ERROR(Agree(group_->exchange(), "group size", CheckGroupSize(options_, topology),
                           options_.startup_timeout));
  BH_ASSIGN_OR_RETURN(options_, FlagsOfGroup(options_, group_->exchange()));
  watchdog_->SetPhaseLimit(options_.startup_timeout);
  return absl::OkStatus();
}

void RankProcess::SetEnding(StreamsEnd ending) {
  const absl::MutexLock lock(&ending_mutex_);
  ending_ = std::move(ending);
}

void RankProcess::SetDrain(std::function<void()> drain) {
  const absl::MutexLock lock(&drain_mutex_);
  drain_ = std::move(drain);
  if (drain_asked_ && drain_ != nullptr) drain_();
}

void RankProcess::DrainMayEndStart() {
  const absl::MutexLock lock(&drain_mutex_);
  drain_ends_start_ = true;
  if (drain_asked_) EndStart();
}

absl::Status RankProcess::StartIsOver() {
  {
    const absl::MutexLock lock(&drain_mutex_);
    drain_ends_start_ = false;
  }
  return Agree(group_->exchange(), "ready", absl::OkStatus(), options_.startup_timeout);
}

void RankProcess::EndStart() {
  const RankTopology& topology = group_->exchange().topology();
  const absl::Status why =
      WithExitCode(absl::CancelledError(absl::StrCat("drained before READY by signal ", SIGUSR1,
                                                     " (USR1), sent to ",
                                                     topology.NameOf(topology.rank, getpid()))),
                   ExitCode::kOk);
  // mpirun's exit code is 0 only if every rank's main thread reaches MPI_Finalize.
  if (!ReadLaunchEnvironment(&std::getenv).by_launcher()) End(why);
  group_->liveness().Abort(why);
}

void RankProcess::OnLost(const absl::Status& why) {
  const absl::Time until = absl::Now() + kLeaveStart;
  while (ExitCodeOf(why) == ExitCode::kOk && absl::Now() < until) {
    if (leaving_.load()) return;
    absl::SleepFor(kLook);
  }
  End(WithGroupCode(why));
}

bool RankProcess::Drain() {
  const absl::MutexLock lock(&drain_mutex_);
  const bool first = !std::exchange(drain_asked_, true);
  if (first && drain_ != nullptr) drain_();
  return first && drain_ != nullptr;
}

void RankProcess::OnSignal(const ReceivedSignal& signal) {
  if (signal.number == SIGUSR1) {
    Drain();
    const absl::MutexLock lock(&drain_mutex_);
    if (drain_ends_start_) EndStart();
    return;
  }
  const bool orphaned = parent_ != 0 && getppid() != parent_;
  if (signal.number == SIGCONT && !orphaned) return;
  end_requested_.store(true);
  // Leaving takes milliseconds, and its outcome is known. mpirun also sends SIGTERM if another rank
  // was lost meanwhile, which the watchdog reports, or has exited with the agreed code.
  if (leaving_.load()) return;
  if (orphaned) {
    alarm(kOrphanSeconds);
    End(WithExitCode(absl::UnavailableError(absl::StrCat("the parent (pid ", parent_, ") ended")),
                     ExitCode::kRankLost));
  }
  Group* const group = joined_.load();
  const bool alone = group == nullptr || group->exchange().topology().size == 1;
  const int wishes = end_requests_.count();
  ++(signal.by_kernel                               ? end_requests_.terminal
     : parent_ != 0 && signal.sender_pid == parent_ ? end_requests_.through_parent
                                                    : end_requests_.direct);
  if (end_requests_.count() == wishes) return;
  if (alone && Drain()) {
    BH_LOG(kInfo) << "a second signal ends at once";
    first_signal_ = absl::Now();
    return;
  }
  // Some senders signal a process and then its group: one request, sent twice. Keys do not.
  if (alone && !signal.by_kernel && absl::Now() - first_signal_ < kSameRequest) return;
  std::string to;
  if (!alone) {
    const RankTopology& topology = group->exchange().topology();
    to = absl::StrCat(", sent to ", topology.NameOf(topology.rank, getpid()));
    // A launcher also sends SIGTERM to the survivors of a lost rank: then that is the cause.
    const absl::Status lost = group->liveness().Check(absl::InfiniteDuration());
    if (!lost.ok()) End(WithGroupCode(lost));
    group->liveness().Ending();
  }
  End(WithExitCode(absl::UnavailableError(absl::StrCat("stopped by signal ", signal.number, " (",
                                                       sigabbrev_np(signal.number), ")", to)),
                   static_cast<ExitCode>(128 + signal.number)));
}

void RankProcess::RunSteps(StepRunner& runner, Coordinator* coordinator) {
  StartUpEnds();
  // The collectives and the sampler round as the kernels do, whatever a library has set.
  _mm_setcsr(0x1F80);
  ControlBus* bus = group_->exchange().topology().size > 1 ? &group_->bus() : nullptr;
  const absl::Status status = RunRank(runner, bus, coordinator, watchdog_.get());
  if (!status.ok()) End(WithGroupCode(status));
}

bool RankProcess::ReportsForGroup(const absl::Status& why) const {
  Group* const group = joined_.load();
  if (group == nullptr) return IsFirstRank();
  const RankTopology& topology = group->exchange().topology();
  // One line for the whole group, from rank 0 unless that is lost.
  if (topology.rank == 0) return true;
  if (IsAgreed(why)) return false;  // rank 0 will report it
  return LostRankOf(why).rank == 0 && ReportsLossOfRank0(topology);
}

int RankProcess::Report(const absl::Status& cause) const {
  if (joined_.load() == nullptr && !IsFirstRank()) {
    // If the first rank has reported, its launcher is ending this one.
    if (!EndedByLauncher() && !end_requested_.load()) BH_LOG(kError) << cause.message();
    return static_cast<int>(ExitCodeOf(cause));
  }
  return ReportsForGroup(cause) ? ExitWith(cause) : static_cast<int>(ExitCodeOf(cause));
}

absl::Status RankProcess::Finish(const absl::Status& status) {
  if (group_ != nullptr && !status.ok()) {
    const absl::Status said = group_->liveness().Check(absl::InfiniteDuration());
    if (!said.ok() && ExitCodeOf(said) == ExitCode::kOk) {  // a start that ended by a drain
      if (ReportsForGroup(said)) ExitWith(said);
      leaving_.store(true);
      group_->Leave(MarkAgreed(said));
      watchdog_.reset();
      return said;
    }
  }
  if (!status.ok() && !IsAgreed(status)) End(WithGroupCode(status));
  // Before the others exit: at the first exit code mpirun kills the remaining ranks.
  if (!status.ok() && ReportsForGroup(status)) ExitWith(status);
  if (group_ == nullptr) return status;
  // Until this rank has left, its watchdog still reports ranks that are silent or have ended.
  watchdog_->PhaseEnds();
  if (const absl::Status met = MeetAtEnd(group_->exchange()); !met.ok()) End(WithGroupCode(met));
  leaving_.store(true);
  group_->Leave(status);
  watchdog_.reset();
  return status;
}

void RankProcess::End(const absl::Status& why) {
  std::call_once(end_once_, [&] {
    absl::Status cause = why;
    if (Group* const group = joined_.load(); group != nullptr) {
      group->liveness().Abort(why);
      // Another rank may have reported first: then its cause and code are the group's.
      const absl::Status said = group->liveness().Check(absl::InfiniteDuration());
      if (!said.ok()) cause = WithGroupCode(said);
    }
    LimitEnd([this, cause] { return Report(cause); });
    const absl::MutexLock lock(&ending_mutex_);
    if (ending_.fail != nullptr) ending_.fail(cause);
    const int code = Report(cause);
    if (ending_.flush != nullptr) ending_.flush();
    Group* const group = joined_.load();
    if (group != nullptr) {
      WaitForCoordinator(group->liveness(), CoordinatorWait(group->exchange().topology(), cause));
    }
    _exit(code);
  });
  while (true) pause();
}

bool ReportsLossOfRank0(const RankTopology& topology) {
  return topology.local_rank == (topology.node() == 0 ? 1 : 0);
}

absl::Duration CoordinatorWait(const RankTopology& topology, const absl::Status& cause) {
  if (topology.rank == 0) return absl::ZeroDuration();
  return LostRankOf(cause).rank == 0 ? kOthersSee : kLastAnswers;
}

absl::Status RunRankProcess(const EngineOptions& options,
                            const std::function<absl::Status(RankProcess&)>& work, pid_t parent) {
  RankProcess process(options, parent);
  absl::Status status = process.Join();
  if (status.ok()) status = work(process);
  return process.Finish(status);
}

}  // namespace bulkhead
