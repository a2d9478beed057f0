// A text during normalisation and pre-tokenization. Besides the text itself it tracks, for
// Metaspace's prepend_scheme "first", whether a piece is at the very beginning of the original
// text.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/utf8.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {

// Where a piece came from. Bytes that originate from the first character of the original text come
// first in a piece; splitting a piece checks whether a part starts with one of them.
struct Origin {
  bool at_start = false;   // when split, the piece started with the original's first character
  size_t first_bytes = 0;  // leading bytes that originate from that character
};

struct AlignedText {
  std::string text;
  Origin origin;
};

// The part [begin, end) of a piece with `origin`.
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
  // The same text, with only `pieces` kept.
  TextPieces(std::string text, std::vector<Piece> pieces);

  const std::string& text() const { return text_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  absl::string_view View(const Piece& piece) const {
    return absl::string_view(text_).substr(piece.begin, piece.end - piece.begin);
  }

  // Splits each piece at the spans that `find(view, &spans)` (a Status) finds.
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

  // Rewrites each piece: `rewrite(view, origin, &out)` appends the new text to `out` and returns
  // its origin. RESOURCE_EXHAUSTED when the text grows too long.
  template <typename Rewrite>
  absl::Status Transform(const Allowance& allowance, Rewrite rewrite) {
    BoundedText out(allowance);
    out.Reserve(text_.size() + text_.size() / 4);
    for (Piece& piece : pieces_) {
      const size_t begin = out.size();
      piece.origin = rewrite(View(piece), piece.origin, &out);
      piece.begin = begin;
      piece.end = out.size();
    }
    if (absl::Status status = out.status(); !status.ok()) return status;
    text_ = out.Take();
    return absl::OkStatus();
  }

 private:
  static void Cut(const Piece& piece, SplitBehavior behavior, const std::vector<Span>& spans,
                  std::vector<Piece>* out);

  std::string text_;
  std::vector<Piece> pieces_;
};

// Spans of the characters with `is_match`, each a separate match.
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
