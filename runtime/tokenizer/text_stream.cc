#include "runtime/tokenizer/text_stream.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/utf8.h"
#include "runtime/tokenizer/stop_matcher.h"

namespace bulkhead {

struct TextStream::State {
  explicit State(Options options)
      : skip_special_tokens(options.skip_special_tokens),
        include_stop_in_output(options.include_stop_in_output),
        stops(std::move(options.stop)),
        forced(std::move(options.forced)) {}

  // How many bytes at the start of `text` still belong to `forced`, the generated text's beginning.
  size_t TakeForced(absl::string_view text);

  // Removes the prompt's own part from `text`, which was decoded after the prompt.
  std::string WithoutPrompt(std::string text);

  // Takes the decoder's next text: appends the final part to `out`, and returns the stop string
  // that was found, or null. `forced` is not searched.
  const std::string* Feed(const std::string& decoded, std::string* out);

  const bool skip_special_tokens;
  const bool include_stop_in_output;
  std::unique_ptr<TextDecoder> decoder;  // null: no tokenizer
  // The end of the prompt's text that its decoder still held back when the prompt ended: it is
  // emitted again, possibly changed, before the generated text.
  std::string prompt_end;
  StopMatcher stops;
  std::string forced;    // the part that may still come
  bool may_stop = true;  // for the last token
  bool stopped = false;
};

std::string TextStream::State::WithoutPrompt(std::string text) {
  if (prompt_end.empty()) return text;
  size_t same = 0;
  while (same < text.size() && same < prompt_end.size()) {
    const size_t size = CharBytes(prompt_end[same]);
    if (text.compare(same, size, prompt_end, same, size) != 0) break;
    same += size;
  }
  if (same < text.size()) {
    prompt_end.clear();
  } else {
    prompt_end.erase(0, same);
  }
  return text.substr(same);
}

size_t TextStream::State::TakeForced(absl::string_view text) {
  size_t same = 0;
  while (same < text.size() && same < forced.size() && text[same] == forced[same]) ++same;
  forced.erase(0, same < text.size() ? forced.size() : same);
  return same;
}

const std::string* TextStream::State::Feed(const std::string& decoded, std::string* out) {
  const std::string text = WithoutPrompt(decoded);
  const size_t taken = TakeForced(text);
  out->append(text, 0, taken);
  return stops.Feed(absl::string_view(text).substr(taken), {may_stop, include_stop_in_output}, out);
}

TextStream::TextStream(const Tokenizer* tokenizer, absl::Span<const int32_t> prompt,
                       Options options)
    : state_(std::make_unique<State>(std::move(options))) {
  if (tokenizer == nullptr) return;
  const bool skip = state_->skip_special_tokens;
  state_->decoder = tokenizer->NewTextDecoder(prompt, skip);
  state_->prompt_end = tokenizer->NewTextDecoder(prompt, skip)->Finish();
}

TextStream::~TextStream() = default;

TextStream::Piece TextStream::Add(int32_t token, bool may_stop) {
  BH_CHECK(!state_->stopped);
  Piece piece;
  if (state_->decoder == nullptr) return piece;
  state_->may_stop = may_stop;
  const std::string* const stop = state_->Feed(state_->decoder->Add(token), &piece.text);
  if (stop != nullptr) {
    state_->stopped = true;
    piece.stop_string = *stop;
  }
  return piece;
}

std::string TextStream::Flush() {
  if (state_->decoder == nullptr || state_->stopped) return {};
  std::string out;
  const std::string* const stop = state_->Feed(state_->decoder->Finish(), &out);
  state_->stopped = true;
  if (stop == nullptr) out += state_->stops.TakeHeld();
  return out;
}

std::string TextStream::TakeHeld() {
  return std::exchange(state_->stopped, true) ? std::string() : state_->stops.TakeHeld();
}

}  // namespace bulkhead
