#include "base/fatal_end.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <system_error>

#include "absl/synchronization/mutex.h"
#include "base/cgroup.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

constexpr int kPatienceMs = 100;
constexpr size_t kProbeBytes = size_t{64} << 20;
constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Collected in advance, before anything fails.
struct Facts {
  std::array<char, 256> name = {};
  std::array<char, 512> cgroup = {};        // the cgroup with the lowest limit
  int64_t cgroup_bytes = int64_t{1} << 60;  // v1 writes a larger number for "no limit"
};
Facts g_facts;
std::atomic<pid_t> g_ending = 0;                        // the thread that is ending the process
alignas(16) std::array<char, 64 << 10> g_signal_stack;  // for the main thread, whose stack may be
                                                        // exhausted

template <size_t N>
void Copy(const std::string& text, std::array<char, N>& to) {
  to[text.copy(to.data(), N - 1)] = 0;
}

// Builds a line without heap allocation.
class Line {
 public:
  Line& Add(const char* text) {
    const size_t bytes = std::min(std::strlen(text), text_.size() - 1 - size_);
    std::memcpy(text_.data() + size_, text, bytes);
    size_ += bytes;
    return *this;
  }
  Line& Add(uint64_t number, unsigned base = 10) {
    std::array<char, 21> digits;
    char* at = &digits.back();
    *at = 0;
    do {
      *--at = "0123456789abcdef"[number % base];
      number /= base;
    } while (number > 0);
    return Add(at);
  }
  Line& AddMib(uint64_t bytes) { return Add(bytes >> 20).Add(" MiB"); }
  const char* text() {
    text_[size_] = 0;
    return text_.data();
  }
  void Write() {
    text_[size_++] = '\n';
    pollfd out = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&out, 1, kPatienceMs) != 1 || (out.revents & POLLOUT) == 0) return;
    const ssize_t written = write(STDERR_FILENO, text_.data(), size_);
    static_cast<void>(written);
  }

 private:
  std::array<char, 2048> text_;
  size_t size_ = 0;
};

// Only one thread ends the process; a crash while doing so is not reported.
void BeginEnd() {
  pid_t none = 0;
  if (g_ending.compare_exchange_strong(none, gettid())) return;
  if (none == gettid()) _exit(static_cast<int>(ExitCode::kBug));
  while (true) pause();
}

Line Begin() {
  Line line;
  line.Add("bulkhead: ");
  if (g_facts.name[0] != 0) line.Add(g_facts.name.data()).Add(": ");
  return line;
}

// "resident 80 MiB, address space 600 MiB of 600 MiB (ulimit -v), cgroup limit 1024 MiB (PATH)".
void AddMemory(Line& line) {
  std::array<char, 128> text = {};
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, text.data(), text.size() - 1) > 0) {
    std::array<uint64_t, 2> pages = {};  // all, resident
    size_t field = 0;
    for (const char* at = text.data(); *at != 0 && field < pages.size(); ++at) {
      if (*at >= '0' && *at <= '9')
        pages[field] = pages[field] * 10 + (*at - '0');
      else
        ++field;
    }
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    line.Add("resident ").AddMib(pages[1] * page_bytes);
    line.Add(", address space ").AddMib(pages[0] * page_bytes);
  }
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    line.Add(" of ").AddMib(limit.rlim_cur).Add(" (ulimit -v)");
  }
  if (g_facts.cgroup[0] != 0) {
    line.Add(", cgroup limit ").AddMib(g_facts.cgroup_bytes);
    line.Add(" (").Add(g_facts.cgroup.data()).Add(")");
  }
}

[[noreturn]] void EndOutOfMemory(Line line, const char* what) {
  line.Add("out of host memory (category host): ").Add(what).Add("; ");
  AddMemory(line);
  line.Add("; give the host more memory, or the ranks less (--device-memory, --reserve)");
  line.Write();
  _exit(static_cast<int>(ExitCode::kRankLost));
}

[[noreturn]] void OnNewFailed() {
  BeginEnd();
  EndOutOfMemory(Begin(), "an allocation failed");
}

// C libraries crash or abort when an allocation fails.
bool IsOutOfMemory(int signal, int error) {
  void* const probe =
      mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return true;
  munmap(probe, kProbeBytes);
  rlimit limit;
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return error == ENOMEM && (limited || signal == SIGABRT);
}

// A library that cannot create a thread aborts as well, without leaving the error in errno.
bool IsOutOfThreads() {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) _exit(0);
  return child < 0 && errno == EAGAIN;
}

[[noreturn]] void EndWithoutThread(Line line, const char* what) {
  line.Add("cannot start a thread: ").Add(what);
  line.Add("; raise ulimit -u, ulimit -v or the pids limit of the cgroup");
  line.Write();
  _exit(static_cast<int>(ExitCode::kGroupNotUp));
}

[[noreturn]] void DieBy(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  _exit(128 + signal);
}

void OnCrash(int signal, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  if (info->si_code <= 0 && info->si_pid != getpid()) DieBy(signal);  // sent by a process (kill)
  BeginEnd();
  Line line = Begin();
  Line what;
  what.Add("signal ").Add(signal).Add(" (").Add(sigabbrev_np(signal)).Add(")");
  if (signal != SIGABRT) {
    what.Add(" at address 0x").Add(reinterpret_cast<uintptr_t>(info->si_addr), 16);
  }
  if (IsOutOfMemory(signal, error)) EndOutOfMemory(line, what.text());
  if (signal == SIGABRT && IsOutOfThreads()) EndWithoutThread(line, what.text());
  line.Add(signal == SIGBUS ? "memory of a file or of /dev/shm is gone: " : "crashed, a bug: ");
  line.Add(what.text()).Add("; ");
  AddMemory(line);
  line.Write();
  rlimit core;
  if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur != 0) DieBy(signal);
  _exit(static_cast<int>(ExitCode::kBug));
}

[[noreturn]] void OnTerminate() {
  BeginEnd();
  Line line = Begin();
  try {
    const std::exception_ptr exception = std::current_exception();
    if (exception != nullptr) std::rethrow_exception(exception);
    line.Add("std::terminate was called, a bug");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      EndWithoutThread(line, error.what());
    }
    line.Add("an exception, a bug: ").Add(error.what());
  } catch (const std::exception& error) {
    line.Add("an exception, a bug: ").Add(error.what());
  } catch (...) {
    line.Add("an exception of an unknown kind, a bug");
  }
  line.Write();
  _exit(static_cast<int>(ExitCode::kBug));
}

void FindCgroup() {
  for (const CgroupDir& dir : CgroupDirs("memory")) {
    const std::optional<int64_t> limit =
        ReadNumber(dir.path + (dir.v2 ? "memory.max" : "memory.limit_in_bytes"));
    if (!limit.has_value() || *limit >= g_facts.cgroup_bytes) continue;
    g_facts.cgroup_bytes = *limit;
    Copy(dir.path, g_facts.cgroup);
  }
}

bool IsOfUcx(const struct sigaction& action) {
  Dl_info info = {};
  return dladdr(reinterpret_cast<void*>(action.sa_handler), &info) != 0 &&
         info.dli_fname != nullptr && std::strstr(info.dli_fname, "/libucs.so") != nullptr;
}

}  // namespace

void InstallFatalEnds() {
  FindCgroup();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::set_new_handler(OnNewFailed);
  std::set_terminate(OnTerminate);
  stack_t stack = {};
  stack.ss_sp = g_signal_stack.data();
  stack.ss_size = g_signal_stack.size();
  sigaltstack(&stack, nullptr);
  for (const int signal : kCrashSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL && !IsOfUcx(action)) continue;
    action.sa_sigaction = OnCrash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
}

void SetFatalName(const std::string& name) { Copy(name, g_facts.name); }

}  // namespace bulkhead
