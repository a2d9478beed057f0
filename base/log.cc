#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

std::atomic<int> g_rank = 0;
std::atomic<int> g_size = 1;
bool g_verbose = false;
bool g_json = false;

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kVerbose:
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

std::string JsonLine(LogLevel level, const std::string& text) {
  const nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3S%Ez", absl::Now(), absl::LocalTimeZone())},
      {"level", NameOf(level)},
      {"rank", g_rank.load()},
      {"message", text}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string TextLine(LogLevel level, const std::string& text) {
  const std::string time =
      absl::FormatTime("%Y-%m-%d %H:%M:%E3S%Ez", absl::Now(), absl::LocalTimeZone());
  return absl::StrCat(time, g_size > 1 ? absl::StrCat(" [rank ", g_rank.load(), "]") : "", " ",
                      NameOf(level), ": ", text);
}

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
void SetLogVerbose(bool verbose) { g_verbose = verbose; }
void SetLogJson(bool json) { g_json = json; }

LogLine::~LogLine() {
  if (level_ < LogLevel::kWarning && g_rank != 0) return;
  if (level_ == LogLevel::kVerbose && !g_verbose) return;
  const std::string text = text_.str();
  WriteLine((g_json ? JsonLine(level_, text) : TextLine(level_, text)) + "\n", /*patience_ms=*/0);
}

}  // namespace bulkhead
