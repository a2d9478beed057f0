// Prints an answer of `chat` as it arrives.
#pragma once

#include <ostream>

#include "launcher/clients/chat_stream.h"

namespace bulkhead {

class ChatPrinter {
 public:
  struct Style {
    bool to_terminal = false;  // control characters are escaped, and reasoning is shown
    bool colors = false;       // reasoning is dim
  };
  // `out` outlives this.
  ChatPrinter(std::ostream* out, Style style) : out_(out), style_(style) {}

  void Print(const ChatPiece& piece);
  // Ends the line; the next piece begins an answer.
  void EndAnswer();

 private:
  void SetDim(bool dim);

  std::ostream* const out_;
  const Style style_;
  bool dim_ = false;
  bool in_reasoning_ = false;
  bool at_line_start_ = true;
  bool any_ = false;
};

}  // namespace bulkhead
