#include "launcher/clients/generate.h"
#include "launcher/exit_status.h"

#include <unistd.h>
#include <atomic>
#include <csignal>
#include <iostream>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/clients/client_channel.h"
#include "launcher/clients/generate_output.h"
#include "launcher/clients/generation_client.h"
#include "launcher/prompts.h"
#include "launcher/signal_thread.h"

namespace bulkhead {
namespace {

constexpr size_t kHeaderBytes = 72;

absl::StatusOr<std::string> ReadPrompt() {
  if (isatty(STDIN_FILENO) != 0)
    std::cerr << "the prompt comes from standard input; Ctrl-D ends it\n";
  BH_ASSIGN_OR_RETURN(std::string text, ReadStandardInput());
  if (!text.empty() && text.back() == '\n') text.pop_back();  // added by echo
  return text;
}

absl::StatusOr<PromptLines> CollectPrompts(const GenerateOptions& options) {
  v1::GenerateRequest defaults = RequestOf(options.request);
  if (options.model.has_value()) defaults.set_model(*options.model);
  if (options.json) defaults.mutable_output()->set_prompt_token_ids(true);
  if (options.prompts_file.has_value()) return ReadPrompts(*options.prompts_file, defaults);
  PromptLines prompts;
  for (const std::string& text : options.prompts) {
    prompts.push_back({0, TextRequest(text, defaults)});
  }
  if (prompts.empty()) {
    BH_ASSIGN_OR_RETURN(const std::string text, ReadPrompt());
    prompts.push_back({0, TextRequest(text, defaults)});
  }
  return prompts;
}

std::vector<std::string> HeadersOf(const PromptLines& prompts) {
  std::vector<std::string> headers;
  for (const auto& [number, prompt] : prompts) {
    if (!prompt.ok() || !prompt->has_text()) {
      headers.push_back(prompt.ok() ? absl::StrCat(prompt->token_ids().ids_size(), " token ids")
                                    : "a bad line");
    } else if (prompt->text().size() > kHeaderBytes) {
      headers.push_back(
          absl::StrCat(absl::Utf8SafeCEscape(prompt->text().substr(0, kHeaderBytes)), " ..."));
    } else {
      headers.push_back(absl::Utf8SafeCEscape(prompt->text()));
    }
  }
  return headers;
}

// Sends every valid prompt, at most `concurrency` at a time.
class PromptSender {
 public:
  PromptSender(const GenerateOptions& options, const PromptLines& prompts, CallsInFlight* calls,
               GenerateOutput* output)
      : options_(options), prompts_(prompts), calls_(calls), output_(output) {}

  void SendAll(const absl::StatusOr<std::shared_ptr<grpc::Channel>>& channel) {
    if (!channel.ok()) {
      for (size_t i = 0; i < prompts_.size(); ++i) Fail(i, channel.status());
      return;
    }
    GenerationClient client(*channel, options_.target, calls_, options_.timeout);
    const size_t num_threads = std::min<size_t>(options_.concurrency, prompts_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < num_threads; ++i) threads.emplace_back([&] { Work(&client); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void Work(GenerationClient* client) {
    for (size_t i = next_++; i < prompts_.size(); i = next_++) {
      const PromptLine& prompt = prompts_[i];
      if (!prompt.request.ok()) {
        Fail(i, prompt.request.status());
      } else if (calls_->cancelled()) {
        Fail(i, absl::CancelledError("cancelled before it was sent"));
      } else {
        ClientTimes times;
        GenerationResult result = client->Run(
            static_cast<int64_t>(i), *prompt.request,
            [&](absl::string_view piece) { output_->OnText(static_cast<int64_t>(i), piece); },
            &times);
        if (absl::IsInvalidArgument(result.status)) {
          result.status = AtLine(prompt.number, result.status);
        }
        output_->OnEnd(result, times.first_token);
      }
    }
  }

  void Fail(size_t index, const absl::Status& status) {
    GenerationResult result;
    result.index = static_cast<int64_t>(index);
    result.status = status;
    output_->OnEnd(result, std::nullopt);
  }

  const GenerateOptions& options_;
  const PromptLines& prompts_;
  CallsInFlight* calls_;
  GenerateOutput* output_;
  std::atomic<size_t> next_{0};
};

}  // namespace

absl::Status RunGenerate(const GenerateOptions& options) {
  BH_ASSIGN_OR_RETURN(const PromptLines prompts, CollectPrompts(options));
  if (prompts.empty()) return absl::OkStatus();

  CallsInFlight calls;
  std::atomic<bool> connected{false};
  std::atomic<int> ended_by{0};
  SignalThread signals({SIGINT, SIGTERM}, [&](const ReceivedSignal& signal) {
    const bool again = ended_by.exchange(signal.number) != 0;
    if (again || !connected) _exit(128 + signal.number);
    calls.CancelAll();
  });
  GenerateOutput output(
      options.json ? GenerateOutput::Format::kJson : GenerateOutput::Format::kText,
      HeadersOf(prompts), &std::cout, &std::cerr, isatty(STDOUT_FILENO) != 0);
  const auto channel = Connect(options.target, options.credentials, kConnectLimit);
  // Credentials that cannot be sent are no prompt's failure.
  if (ExitCodeOf(channel.status()) == ExitCode::kUsage) return channel.status();
  connected = true;
  const absl::Time begin = absl::Now();
  PromptSender(options, prompts, &calls, &output).SendAll(channel);
  if (channel.ok() && (options.stats || isatty(STDERR_FILENO) != 0)) {
    std::cerr << output.Summary(absl::Now() - begin) << std::endl;
  }
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  const absl::Status outcome = output.Outcome();
  // Requests answered in full before the cancellation are no failure.
  return ended_by == 0 ? outcome : WithExitCode(outcome, static_cast<ExitCode>(128 + ended_by));
}

}  // namespace bulkhead
