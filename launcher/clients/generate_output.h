// Output of `generate`: answers in the order of the prompts, however their pieces arrive. The text
// of the current prompt is streamed; later ones are buffered.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
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

  void PrintPendingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Format format_;
  bool to_terminal_;
  std::vector<std::string> headers_;
  std::ostream* out_;
  std::ostream* err_;
  mutable absl::Mutex mutex_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  // The first answer that is not completely printed.
  size_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status first_failure_ ABSL_GUARDED_BY(mutex_);
  int64_t first_failure_index_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::Duration> first_tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
