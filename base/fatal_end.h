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
// * an order of locks in which threads could wait for one another does not: Abseil, where it is
//   built to look for one, as Debian's is, ends the process although nothing waits, and takes a
//   destroyed mutex of a release build for one that lives (from 2024 on).
// Signals that already have a handler are left alone. Call before the process has threads.
void InstallFatalEnds();

// The prefix of such a line: "rank 0 (host a, pid 4711)". Call once.
void SetFatalName(const std::string& name);

}  // namespace bulkhead
