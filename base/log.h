// BH_LOG(kInfo) << "loaded " << n;  one line on standard error, with time and rank. Rank 0 speaks
// for the group: an kInfo line of another rank is dropped; warnings and errors of every rank are
// printed.
#pragma once

#include <sstream>
#include <string>

namespace bulkhead {

enum class LogLevel { kInfo, kWarning, kError };

// This process's rank, printed before every line when the group has more than one. Set once, before
// threads start.
void SetLogRank(int rank, int size);

// One line to standard error, newline included, or nothing when it cannot take it within
// `patience_ms`: a log that nobody reads must not stop a server.
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
