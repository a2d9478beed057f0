// A text on its way through normalisers and pre-tokenizers. Besides the text itself one thing about
// where it came from is kept, because Metaspace's prepend_scheme "first" asks for it: whether a
// piece stands at the very beginning of the original text.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {

// Where a piece came from. Bytes that stem from the first character of the original text come first
// in a piece; cutting a piece anew asks whether it begins with one of them.
struct Origin {
  bool at_start = false;   // as it was cut, the piece began with the original's first character
  size_t first_bytes = 0;  // leading bytes of the piece that stem from that character
};

// No text may be longer, nor become longer on its way: RESOURCE_EXHAUSTED.
absl::Status CheckTextBytes(size_t bytes);

struct AlignedText {
  std::string text;
  Origin origin;
};

// The part [begin, end) of something with `origin`.
Origin CutOrigin(const Origin& origin, size_t begin, size_t end);

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Pieces of one text, in order; empty ones are dropped.
class TextPieces {
 public:
  struct Piece {
    size_t begin = 0, end = 0;  // in text()
    Origin origin;
  };

  explicit TextPieces(AlignedText text);
  // The same text, of which `pieces` are kept.
  TextPieces(std::string text, std::vector<Piece> pieces);

  const std::string& text() const { return text_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  absl::string_view View(const Piece& piece) const {
    return absl::string_view(text_).substr(piece.begin, piece.end - piece.begin);
  }

  // Cuts each piece at the spans that `find(view, &spans)` (a Status) finds.
  template <typename Find>
  absl::Status Split(SplitBehavior behavior, Find find) {
    std::vector<Piece> cut;
    cut.reserve(pieces_.size());
    std::vector<Span> spans;
    for (const Piece& piece : pieces_) {
      spans.clear();
      if (absl::Status status = find(View(piece), &spans); !status.ok()) return status;
      Cut(piece, behavior, spans, &cut);
    }
    pieces_ = std::move(cut);
    return absl::OkStatus();
  }

  // Rewrites each piece: `rewrite(view, origin, &out)` appends its new text to `out` and returns
  // the origin of it.
  template <typename Rewrite>
  void Transform(Rewrite rewrite) {
    std::string out;
    out.reserve(text_.size() + text_.size() / 4);
    for (Piece& piece : pieces_) {
      const size_t begin = out.size();
      piece.origin = rewrite(View(piece), piece.origin, &out);
      piece.begin = begin;
      piece.end = out.size();
    }
    text_ = std::move(out);
  }

 private:
  static void Cut(const Piece& piece, SplitBehavior behavior, const std::vector<Span>& spans,
                  std::vector<Piece>* out);

  std::string text_;
  std::vector<Piece> pieces_;
};

// Spans of the characters for which `is_match` holds, each a match of its own.
template <typename IsMatch>
void FindChars(absl::string_view text, IsMatch is_match, std::vector<Span>* spans) {
  size_t covered = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!is_match(NextChar(text, &position))) continue;
    if (covered < begin) spans->push_back({covered, begin, false});
    spans->push_back({begin, position, true});
    covered = position;
  }
  if (covered < text.size()) spans->push_back({covered, text.size(), false});
}

}  // namespace bulkhead
