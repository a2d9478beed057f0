// BH_LOG(kInfo) << "loaded " << n;  one line on standard error: date, time with its zone's offset,
// level, rank and text, or a JSON object of these. Rank 0 speaks for the group: other ranks' lines
// below kWarning are dropped.
#pragma once

#include <sstream>
#include <string>

namespace bulkhead {

enum class LogLevel { kVerbose, kInfo, kWarning, kError };

// This process's rank, which lines name when the group has more than one. Any thread.
void SetLogRank(int rank, int size);
// ---- set while the process has one thread
void SetLogVerbose(bool verbose);  // kVerbose lines too
void SetLogJson(bool json);        // {"time", "level", "rank", "message"}

// One line to standard error, newline included, or nothing when it cannot take it within
// `patience_ms`: a log that is not read must not stop a server.
void WriteLine(const std::string& line, int patience_ms);

class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  ~LogLine();
  template <typename T>
  LogLine& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  LogLevel level_;
  std::ostringstream text_;
};

}  // namespace bulkhead

#define BH_LOG(level) ::bulkhead::LogLine(::bulkhead::LogLevel::level)
