// Fatal ends: out of host memory, a crash, an uncaught exception. Each writes one line to standard
// error, without heap allocation, and exits with a typed exit code.
#pragma once

#include <string>

namespace bulkhead {

// From this call until exec:
// * a failed allocation, here or in a library that then aborts or crashes, ends the process with
//   ExitCode::kRankLost and a line that names the "host" memory category and its limit;
// * SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT raised by the process itself end it with
//   ExitCode::kBug and a line, or with that signal if ulimit -c enables core dumps. The same
//   signals sent by other processes kill it as usual;
// * a thread that cannot be started ends it with ExitCode::kGroupNotUp, an uncaught exception with
//   ExitCode::kBug.
// * a potential deadlock does not end it: Abseil's detector, which Debian's build has, aborts for a
//   lock-order inversion although no thread waits, and from 2024 on, in release builds, for a mutex
//   at the address of a destroyed one.
// Signals that already have a handler are left alone, except UCX's, which it installs where it is
// loaded (Open MPI 5 links it) and which prints a stack instead. Call before the process has
// threads.
void InstallFatalEnds();

// The prefix of such a line: "rank 0 (host a, pid 4711)". Call once.
void SetFatalName(const std::string& name);

}  // namespace bulkhead
