// Ends that nothing returns from: memory that cannot be had, a crash, an exception that nobody
// catches. Each is one line on standard error, written without the heap, and an exit code.
#pragma once

#include <string>

namespace bulkhead {

// From now on, and until exec:
// * an allocation that fails, here or in a library that then aborts or crashes, ends the process
//   with ExitCode::kRankLost and a line that names the term "host" and what limits it;
// * SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT of its own making end it with ExitCode::kBug and a
//   line; by that signal where ulimit -c asks for a core. Those that others send kill as ever;
// * a thread that cannot be started ends it with ExitCode::kGroupNotUp, an exception with
//   ExitCode::kBug.
// Leaves the signals alone that have a handler already. Call it before the process has threads.
void InstallFatalEnds();

// What such a line begins with: "rank 0 (host a, pid 4711)". Once.
void SetFatalName(const std::string& name);

}  // namespace bulkhead
