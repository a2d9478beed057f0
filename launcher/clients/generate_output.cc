#include "launcher/clients/generate_output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

std::string Described(const absl::Status& status) {
  return EscapeControls(
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message()));
}

}  // namespace

std::string EscapeControls(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      absl::StrAppendFormat(&out, "\\x%02x", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

GenerateOutput::GenerateOutput(Format format, std::vector<std::string> headers, std::ostream* out,
                               std::ostream* err, bool to_terminal)
    : format_(format),
      to_terminal_(to_terminal),
      headers_(std::move(headers)),
      out_(out),
      err_(err),
      answers_(headers_.size()) {}

void GenerateOutput::OnText(int64_t index, absl::string_view piece) {
  if (format_ == Format::kJson) return;
  const absl::MutexLock lock(&mutex_);
  absl::StrAppend(&answers_[index].pending,
                  to_terminal_ ? EscapeControls(piece) : std::string(piece));
  PrintPendingLocked();
}

void GenerateOutput::OnEnd(const GenerationResult& result,
                           std::optional<absl::Duration> first_token) {
  const absl::MutexLock lock(&mutex_);
  Answer& answer = answers_[result.index];
  answer.ended = true;
  tokens_ += static_cast<int64_t>(result.tokens.size());
  if (first_token.has_value()) first_tokens_.push_back(*first_token);
  if (!result.status.ok()) {
    ++failed_;
    answer.failure = Described(result.status);
    if (first_failure_index_ < 0 || result.index < first_failure_index_) {
      first_failure_ = result.status;
      first_failure_index_ = result.index;
    }
  } else if (format_ == Format::kText && result.text.empty() && !result.tokens.empty()) {
    *err_ << "prompt " << result.index + 1 << ": tokens without a text; --json shows their ids\n";
  }
  if (format_ == Format::kJson) answer.pending = ResultLine(result) + "\n";
  PrintPendingLocked();
}

void GenerateOutput::PrintPendingLocked() {
  for (; turn_ < answers_.size(); ++turn_) {
    Answer& answer = answers_[turn_];
    if (answer.pending.empty() && !answer.ended) break;
    const bool alone = answers_.size() == 1;
    if (!std::exchange(answer.begun, true) && format_ == Format::kText && !alone) {
      *out_ << "> " << headers_[turn_] << "\n";
    }
    answer.printed_text = answer.printed_text || !answer.pending.empty();
    *out_ << std::exchange(answer.pending, std::string());
    if (!answer.ended) break;
    if (format_ == Format::kJson) continue;
    if (!alone) {
      *out_ << "\n\n";
    } else if (answer.printed_text || answer.failure.empty()) {
      *out_ << "\n";
    }
    if (!answer.failure.empty() && !alone) {
      out_->flush();
      *err_ << "prompt " << turn_ + 1 << ": " << answer.failure << "\n";
    }
  }
  out_->flush();
}

absl::Status GenerateOutput::Outcome() const {
  const absl::MutexLock lock(&mutex_);
  if (failed_ == 0) return absl::OkStatus();
  const std::string message =
      answers_.size() == 1
          ? Described(first_failure_)
          : absl::StrCat(failed_, " of ", answers_.size(), " prompts failed; prompt ",
                         first_failure_index_ + 1, ": ", Described(first_failure_));
  return WithExitCode(absl::Status(first_failure_.code(), message), ExitCode::kClientError);
}

std::string GenerateOutput::Summary(absl::Duration elapsed) const {
  const absl::MutexLock lock(&mutex_);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  std::string summary =
      absl::StrFormat("%d %s, %s tokens in %.2f s: %.1f tokens/s", answers_.size(),
                      answers_.size() == 1 ? "prompt" : "prompts", FormatCount(tokens_), seconds,
                      seconds > 0 ? static_cast<double>(tokens_) / seconds : 0.0);
  if (first_tokens_.empty()) return summary;
  std::vector<absl::Duration> sorted = first_tokens_;
  std::sort(sorted.begin(), sorted.end());
  absl::StrAppend(&summary, absl::StrFormat(", first token after %.0f ms%s",
                                            absl::ToDoubleMilliseconds(sorted[sorted.size() / 2]),
                                            sorted.size() > 1 ? " (median)" : ""));
  return summary;
}

}  // namespace bulkhead
