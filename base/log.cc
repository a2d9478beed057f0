#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>

namespace bulkhead {
namespace {

int g_rank = 0;
int g_size = 1;

}  // namespace

void WriteLine(const std::string& line, int patience_ms) {
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, patience_ms) != 1 || (out.revents & POLLOUT) == 0) return;
  // One write per line, so that lines of different ranks do not interleave.
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;
}

void SetLogRank(int rank, int size) {
  g_rank = rank;
  g_size = size;
}

LogLine::~LogLine() {
  if (level_ == LogLevel::kInfo && g_rank != 0) return;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm local;
  localtime_r(&now.tv_sec, &local);
  char stamp[32];
  const size_t n = std::strftime(stamp, sizeof(stamp), "%H:%M:%S", &local);
  std::snprintf(stamp + n, sizeof(stamp) - n, ".%03ld", now.tv_nsec / 1000000);
  std::string line = std::string(stamp) + " ";
  if (g_size > 1) line += "[rank " + std::to_string(g_rank) + "] ";
  if (level_ == LogLevel::kWarning) line += "warning: ";
  if (level_ == LogLevel::kError) line += "error: ";
  line += text_.str() + "\n";
  WriteLine(line, /*patience_ms=*/0);
}

}  // namespace bulkhead
