#include "launcher/clients/chat.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/clients/chat_printer.h"
#include "launcher/clients/chat_stream.h"
#include "launcher/clients/client_credentials.h"
#include "launcher/clients/conversation.h"
#include "launcher/clients/generate_output.h"
#include "launcher/clients/http_call.h"
#include "launcher/clients/line_editor.h"
#include "launcher/exit_status.h"
#include "launcher/prompts.h"
#include "launcher/signal_thread.h"
#include "runtime/service/access/access_control.h"

namespace bulkhead {
namespace {

constexpr char kPath[] = "/v1/chat/completions";
constexpr size_t kMaxModelsBytes = size_t{1} << 20;

// The call in flight, for signals.
class CurrentCall {
 public:
  void Set(HttpCall* call) {
    const absl::MutexLock lock(&mutex_);
    call_ = call;
  }
  // Whether there was one.
  bool Cancel() {
    const absl::MutexLock lock(&mutex_);
    if (call_ != nullptr) call_->Cancel();
    return call_ != nullptr;
  }

 private:
  absl::Mutex mutex_;
  HttpCall* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

class Chat {
 public:
  Chat(const ChatOptions& options, HttpTarget target, ChatPrinter::Style style,
       CurrentCall* current)
      : target_(std::move(target)),
        model_(options.model),
        conversation_(options),
        output_(&std::cout, style),
        current_(current) {}

  Conversation& conversation() { return conversation_; }

  // Prints the answer to `message` and keeps both; a message that got none is not kept. CANCELLED
  // if a signal stopped it.
  absl::Status Answer(const std::string& message) {
    BH_RETURN_IF_ERROR(CheckUtf8("message", message));
    conversation_.AddUser(message);
    ChatStreamReader reader;
    absl::Status read;
    std::vector<ChatPiece> pieces;
    absl::Status status = Send(kPath, conversation_.RequestJson(), [&](absl::string_view bytes) {
      pieces.clear();
      read = reader.Append(bytes, &pieces);
      for (const ChatPiece& piece : pieces) output_.Print(piece);
      return read.ok() && !reader.is_done() && std::cout.good();
    });
    output_.EndAnswer();
    if (!read.ok()) {
      status = read;
    } else if (status.ok()) {
      status = reader.End();
    }
    if (reader.content().empty() && !status.ok()) {
      conversation_.DropUser();
    } else {
      conversation_.AddAnswer(reader.content());
    }
    finish_reason_ = reader.finish_reason();
    return status;
  }

  const std::string& finish_reason() const { return finish_reason_; }

  // "model NAME, 4096 tokens".
  absl::StatusOr<std::string> DescribeModel() {
    std::string body;
    BH_RETURN_IF_ERROR(Send("/v1/models", "", [&](absl::string_view bytes) {
      body.append(bytes.data(), bytes.size());
      return body.size() <= kMaxModelsBytes;
    }));
    const auto models = ParseJsonObject(body, "/v1/models");
    if (models.ok() && models->contains("data") && (*models)["data"].is_array() &&
        !(*models)["data"].empty() && (*models)["data"][0].is_object()) {
      const nlohmann::json& model = (*models)["data"][0];
      const auto id = model.find("id");
      const auto length = model.find("max_model_len");
      if (id != model.end() && id->is_string()) {
        return EscapeControls(
            absl::StrCat("model ", model_.value_or(id->get<std::string>()),
                         length != model.end() && length->is_number_integer()
                             ? absl::StrCat(", ", length->get<int64_t>(), " tokens of context")
                             : std::string()));
      }
    }
    return absl::UnavailableError(absl::StrCat("the program at ", target_.address,
                                               " names no model: it is not a Bulkhead server"));
  }

 private:
  absl::Status Send(const std::string& path, const std::string& body,
                    const HttpCall::OnBody& on_body) {
    HttpCall call(target_);
    current_->Set(&call);
    const absl::Status status = call.Send(path, body, on_body);
    current_->Set(nullptr);
    return status;
  }

  const HttpTarget target_;
  const std::optional<std::string> model_;
  Conversation conversation_;
  ChatPrinter output_;
  CurrentCall* const current_;
  std::string finish_reason_;
};

// A message of one line, or of several that end with a backslash.
LineEditor::End ReadMessage(LineEditor* editor, std::string* message) {
  message->clear();
  std::string line;
  while (true) {
    const LineEditor::End end = editor->Read(message->empty() ? "> " : ". ", &line);
    if (end != LineEditor::End::kLine) return end;
    const bool goes_on = absl::EndsWith(line, "\\");
    if (goes_on) line.back() = '\n';
    *message += line;
    if (goes_on) continue;
    if (ChatInputOf(*message) != ChatInput::kEmpty) editor->Remember(*message);
    return end;
  }
}

bool IsTooLong(const absl::Status& status) {
  for (const char* const code : {"context_length_exceeded:", "KV_BUDGET:", "MESSAGE_TOO_LARGE:"}) {
    if (absl::StartsWith(status.message(), code)) return true;
  }
  return false;
}

void AnswerInTerminal(Chat* chat, const std::string& message) {
  const absl::Status status = chat->Answer(message);
  if (absl::IsCancelled(status)) {
    std::cout << "[stopped]\n";
  } else if (!status.ok()) {
    std::cout << EscapeControls(status.message())
              << (IsTooLong(status) ? "; /reset begins a new conversation" : "") << "\n";
  } else if (chat->finish_reason() == "length") {
    std::cout << "[the answer has reached its limit of tokens]\n";
  }
  std::cout.flush();
}

absl::Status ChatInTerminal(Chat* chat, const std::string& address) {
  BH_ASSIGN_OR_RETURN(const std::string model, chat->DescribeModel());
  std::cout << model << " at " << address << "; /help lists the commands" << std::endl;
  LineEditor editor;
  std::string message;
  while (std::cout) {
    const LineEditor::End end = ReadMessage(&editor, &message);
    if (end == LineEditor::End::kInterrupted) {
      std::cout << "\n(Ctrl-D or /exit leaves)" << std::endl;
      continue;
    }
    if (end == LineEditor::End::kEnd) {
      std::cout << std::endl;
      break;
    }
    const ChatInput input = ChatInputOf(message);
    if (input == ChatInput::kExit) break;
    if (input == ChatInput::kReset) {
      chat->conversation().Reset();
      std::cout << "(a new conversation)" << std::endl;
    } else if (input == ChatInput::kHelp) {
      std::cout << ChatHelp() << std::flush;
    } else if (input == ChatInput::kUnknownCommand) {
      std::cout << "no command " << EscapeControls(absl::StripAsciiWhitespace(message))
                << "; /help lists them" << std::endl;
    } else if (input == ChatInput::kMessage) {
      AnswerInTerminal(chat, message);
    }
  }
  return FlushStandardOutput();
}

absl::Status AnswerStandardInput(Chat* chat) {
  if (isatty(STDIN_FILENO) != 0)
    std::cerr << "the message comes from standard input; Ctrl-D ends it\n";
  BH_ASSIGN_OR_RETURN(std::string message, ReadStandardInput());
  if (!message.empty() && message.back() == '\n') message.pop_back();  // added by echo
  if (message.empty()) {
    return WithExitCode(absl::InvalidArgumentError("standard input has no message"),
                        ExitCode::kUsage);
  }
  const absl::Status status = chat->Answer(message);
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  return status;
}

}  // namespace

absl::Status RunChat(const ChatOptions& options) {
  BH_RETURN_IF_ERROR(CheckTogether(options.credentials));
  BH_ASSIGN_OR_RETURN(std::string key, ReadClientKey(options.credentials.api_key_file,
                                                     std::getenv(kApiKeyVariable)));
  const bool to_terminal = isatty(STDOUT_FILENO) != 0;
  const bool interactive = to_terminal && isatty(STDIN_FILENO) != 0;
  const char* const term = std::getenv("TERM");
  const bool plain =
      std::getenv("NO_COLOR") != nullptr || term == nullptr || absl::string_view(term) == "dumb";
  if (interactive) LineEditor::RestoreTerminal();  // remembers it as it is now
  CurrentCall current;
  std::atomic<int> ended_by{0};
  SignalThread signals({SIGINT, SIGTERM}, [&](const ReceivedSignal& signal) {
    if (interactive && signal.number == SIGINT) {
      current.Cancel();  // at the prompt it is read as a key
      return;
    }
    const bool again = ended_by.exchange(signal.number) != 0;
    if (interactive || again || !current.Cancel()) {
      if (interactive) LineEditor::RestoreTerminal();
      _exit(128 + signal.number);
    }
  });
  Chat chat(options,
            {.address = options.http,
             .api_key = std::move(key),
             .ssl_ca_certs = options.credentials.ssl_ca_certs.value_or(""),
             .ssl_certfile = options.credentials.ssl_certfile.value_or(""),
             .ssl_keyfile = options.credentials.ssl_keyfile.value_or("")},
            {.to_terminal = to_terminal, .colors = to_terminal && !plain}, &current);
  const absl::Status status =
      interactive ? ChatInTerminal(&chat, options.http) : AnswerStandardInput(&chat);
  if (ended_by != 0) return WithExitCode(status, static_cast<ExitCode>(128 + ended_by));
  return ExitCodeOf(status) == ExitCode::kBug ? WithExitCode(status, ExitCode::kClientError)
                                              : status;
}

}  // namespace bulkhead
