#include "launcher/clients/conversation.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/check.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

template <typename T>
void Set(const char* name, const std::optional<T>& value, ordered_json* fields) {
  if (value.has_value()) (*fields)[name] = *value;
}

ordered_json Message(const char* role, absl::string_view text) {
  return {{"role", role}, {"content", std::string(text)}};
}

}  // namespace

Conversation::Conversation(const ChatOptions& options) {
  const RequestOptions& request = options.request;
  Set("model", options.model, &fields_);
  Set("max_completion_tokens", request.max_tokens, &fields_);
  Set("temperature", request.temperature, &fields_);
  Set("top_p", request.top_p, &fields_);
  Set("top_k", request.top_k, &fields_);
  Set("min_p", request.min_p, &fields_);
  Set("seed", request.seed, &fields_);
  fields_["stream"] = true;
  if (options.system.has_value()) messages_.push_back(Message("system", *options.system));
  num_fixed_ = messages_.size();
}

void Conversation::Reset() {
  while (messages_.size() > num_fixed_) messages_.erase(messages_.size() - 1);
}

void Conversation::AddUser(absl::string_view text) { messages_.push_back(Message("user", text)); }

void Conversation::DropUser() {
  BH_CHECK(num_messages() > 0);
  messages_.erase(messages_.size() - 1);
}

void Conversation::AddAnswer(absl::string_view text) {
  messages_.push_back(Message("assistant", text));
}

std::string Conversation::RequestJson() const {
  ordered_json request = fields_;
  request["messages"] = messages_;
  return request.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ChatInput ChatInputOf(absl::string_view line) {
  const absl::string_view word = absl::StripAsciiWhitespace(line);
  if (word.empty()) return ChatInput::kEmpty;
  if (word == "/reset") return ChatInput::kReset;
  if (word == "/help" || word == "/?") return ChatInput::kHelp;
  if (word == "/exit" || word == "/quit") return ChatInput::kExit;
  // "/usr/bin is full" is a message, "/rest" is not.
  const bool is_command = word.size() > 1 && word[0] == '/' &&
                          std::all_of(word.begin() + 1, word.end(), absl::ascii_isalpha);
  return is_command ? ChatInput::kUnknownCommand : ChatInput::kMessage;
}

absl::string_view ChatHelp() {
  return "  /reset   forget the conversation; the system message stays\n"
         "  /help    this list\n"
         "  /exit    leave, as does Ctrl-D\n"
         "  Ctrl-C   stop the answer; what was printed of it stays in the conversation\n"
         "  Up       earlier messages, to edit and send again\n"
         "  A line that ends with \\ goes on in the next one.\n";
}

}  // namespace bulkhead
