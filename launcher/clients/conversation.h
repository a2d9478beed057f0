// The messages of a chat, and the request for the next answer.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "launcher/flags/options.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

class Conversation {
 public:
  explicit Conversation(const ChatOptions& options);

  // Forgets all but the system message.
  void Reset();
  void AddUser(absl::string_view text);
  // Takes the last user message back: it got no answer.
  void DropUser();
  void AddAnswer(absl::string_view text);
  // Messages of user and model.
  size_t num_messages() const { return messages_.size() - num_fixed_; }

  // A streamed request of /v1/chat/completions. Bytes that are not UTF-8 become U+FFFD.
  std::string RequestJson() const;

 private:
  nlohmann::ordered_json fields_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  size_t num_fixed_ = 0;
};

// A line that a user typed in a terminal.
enum class ChatInput { kMessage, kEmpty, kReset, kHelp, kExit, kUnknownCommand };
ChatInput ChatInputOf(absl::string_view line);
// The text that /help prints.
absl::string_view ChatHelp();

}  // namespace bulkhead
