// BH_LOG(kInfo) << "loaded " << n;  one line on standard error, with time and rank. Info lines are
// printed by rank 0 only; warnings and errors by every rank.
#pragma once

#include <sstream>
#include <string>

namespace bulkhead {

enum class LogLevel { kInfo, kWarning, kError };

// This process's rank, printed before every line if the group has more than one. Set once, before
// threads start.
void SetLogRank(int rank, int size);

// Writes one line, newline included, to standard error, or drops it if that blocks for more than
// `patience_ms`: an unread log must not stall the server.
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
