#include "launcher/clients/chat_printer.h"

#include "launcher/clients/generate_output.h"

namespace bulkhead {

void ChatPrinter::SetDim(bool dim) {
  if (dim_ == dim || !style_.colors) return;
  *out_ << (dim ? "\x1b[2m" : "\x1b[0m");
  dim_ = dim;
}

void ChatPrinter::Print(const ChatPiece& piece) {
  if (piece.text.empty() || (piece.is_reasoning && !style_.to_terminal)) return;
  if (in_reasoning_ && !piece.is_reasoning) {
    SetDim(false);
    *out_ << (at_line_start_ ? "\n" : "\n\n");
  }
  in_reasoning_ = piece.is_reasoning;
  SetDim(piece.is_reasoning);
  *out_ << (style_.to_terminal ? EscapeControls(piece.text) : piece.text);
  at_line_start_ = piece.text.back() == '\n';
  any_ = true;
  out_->flush();
}

void ChatPrinter::EndAnswer() {
  SetDim(false);
  if (any_ && !at_line_start_) *out_ << "\n";
  out_->flush();
  in_reasoning_ = any_ = false;
  at_line_start_ = true;
}

}  // namespace bulkhead
