#include "runtime/tokenizer/text_pieces.h"

#include <algorithm>
#include <utility>

namespace bulkhead {

Origin CutOrigin(const Origin& origin, size_t begin, size_t end) {
  if (!origin.at_start || begin >= origin.first_bytes) return {};
  return {true, std::min(end, origin.first_bytes) - begin};
}

TextPieces::TextPieces(AlignedText text) : text_(std::move(text.text)) {
  if (!text_.empty()) pieces_.push_back({0, text_.size(), text.origin});
}

TextPieces::TextPieces(std::string text, std::vector<Piece> pieces)
    : text_(std::move(text)), pieces_(std::move(pieces)) {}

void TextPieces::Cut(const Piece& piece, SplitBehavior behavior, const std::vector<Span>& spans,
                     std::vector<Piece>* out) {
  const auto keep = [&](size_t begin, size_t end) {
    if (begin == end) return;
    out->push_back({piece.begin + begin, piece.begin + end, CutOrigin(piece.origin, begin, end)});
  };
  size_t begin = 0;  // of the growing piece
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool match = spans[i].is_match;
    const bool last = i + 1 == spans.size();
    const bool next_match = !last && spans[i + 1].is_match;
    // Whether a piece ends after this span.
    bool ends = true;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (match) begin = spans[i].end;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        ends = last || next_match != match;
        break;
      // A match joins its neighbour unless that is also a match.
      case SplitBehavior::kMergedWithPrevious:
        ends = last || match || !next_match;
        break;
      case SplitBehavior::kMergedWithNext:
        ends = last || !match || next_match;
        break;
    }
    if (!ends) continue;
    keep(begin, spans[i].end);
    begin = spans[i].end;
  }
}

}  // namespace bulkhead
