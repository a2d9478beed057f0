// Output of `generate`: answers in the order of the prompts, however their pieces arrive. The text
// of the current prompt is streamed; later ones are buffered.
#pragma once

#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/prompts.h"

namespace bulkhead {

// `text` with every control character except newlines and tabs escaped as "\x1b".
std::string EscapeControls(absl::string_view text);

// Thread-safe.
class GenerateOutput {
 public:
  enum class Format { kText, kJson };
  // `headers` [prompts]: printed before each text, unless there is only one. `out` and `err`
  // outlive this. `to_terminal`: escapes control characters in the answers.
  GenerateOutput(Format format, std::vector<std::string> headers, std::ostream* out,
                 std::ostream* err, bool to_terminal = false);

  void OnText(int64_t index, absl::string_view piece);
  void OnEnd(const GenerationResult& result, std::optional<absl::Duration> first_token);

  // Ok if every prompt was answered; else the first failure's code and exit code 1, with the number
  // of failures.
  absl::Status Outcome() const;
  // "4 prompts, 256 tokens in 1.6 s: 160.0 tokens/s, first token after 12 ms (median)".
  std::string Summary(absl::Duration elapsed) const;

 private:
  struct Answer {
    std::string pending;  // buffered text, or the JSON line
    std::string failure;
    bool begun = false;
    bool printed_text = false;
    bool ended = false;
  };

  void PrintPending();
  void Begin(Answer* answer);

  Format format_;
  bool to_terminal_;
  std::vector<std::string> headers_;
  std::ostream* out_;
  std::ostream* err_;
  mutable std::mutex mutex_;
  std::vector<Answer> answers_;
  size_t turn_ = 0;  // the first answer that is not completely printed
  int64_t failed_ = 0;
  absl::Status first_failure_;
  int64_t first_failure_index_ = -1;
  int64_t tokens_ = 0;
  std::vector<absl::Duration> first_tokens_;
};

}  // namespace bulkhead
