// Lines that a user types in a terminal, with editing and a history (libedit). One at a time.
#pragma once

#include <memory>
#include <string>

namespace bulkhead {

class LineEditor {
 public:
  enum class End {
    kLine,
    kInterrupted,  // Ctrl-C: what was typed is dropped
    kEnd,          // Ctrl-D in an empty line, or the terminal is gone
  };

  // Standard input and output are a terminal.
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // `line` without its newline.
  End Read(const std::string& prompt, std::string* line);
  // Up brings it back. At most 1,000 are kept, in this process alone.
  void Remember(const std::string& line);

  // The terminal as it was before any LineEditor, for whoever ends the process. Any thread.
  static void RestoreTerminal();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bulkhead
