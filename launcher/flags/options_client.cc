// The commands that load no model, and request flags.
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/request_flags.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int kMaxConcurrency = 1024;
constexpr double kMaxRequestTemperature = 100;  // a server's limit
constexpr size_t kMaxSchemaBytes = 64 << 10;    // limit per request

// HOST:PORT, [IPv6]:PORT.
Flags::Apply TargetValue(std::string* out) {
  return [=](const std::string& text) -> absl::Status {
    const size_t colon = text.rfind(':');
    int port = 0;
    if (const size_t end = text.find("://"); end != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not HOST:PORT; leave out ",
                                                     text.substr(0, end + 3),
                                                     " and what follows the port"));
    }
    if (colon == std::string::npos || colon == 0 ||
        !PortValue(&port)(text.substr(colon + 1)).ok() || port < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not HOST:PORT with a port from 1 to 65535"));
    }
    *out = text;
    return absl::OkStatus();
  };
}

Flags::Apply TokenIdListValue(std::vector<uint32_t>* out) {
  return Appending([=](const std::string& text) -> absl::Status {
    BH_ASSIGN_OR_RETURN(const int64_t id, ParseInteger(text, 0, kMaxInt32));
    out->push_back(static_cast<uint32_t>(id));
    return absl::OkStatus();
  });
}

// ID=BIAS.
Flags::Apply LogitBiasValue(std::vector<std::pair<uint32_t, float>>* out) {
  return Appending([=](const std::string& text) -> absl::Status {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (!absl::StrContains(text, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not ID=BIAS, a token id and what is added to its logit"));
    }
    BH_ASSIGN_OR_RETURN(const int64_t id, ParseInteger(parts.first, 0, kMaxInt32));
    BH_ASSIGN_OR_RETURN(const double bias, ParseReal(parts.second, -100, 100, Border::kIncluded));
    out->emplace_back(static_cast<uint32_t>(id), static_cast<float>(bias));
    return absl::OkStatus();
  });
}

void AddSamplingFlags(RequestOptions* options, Flags* flags) {
  flags->Add("--temperature", "X", "sampling temperature; 0 selects greedy decoding",
             RealValue(&options->temperature, 0, kMaxRequestTemperature, Border::kIncluded));
  flags->Add("--top-p", "X",
             "sample from the smallest set of most likely tokens with at least this total "
             "probability, in (0, 1]",
             RealValue(&options->top_p, 0, 1, Border::kExcluded));
  flags->Add("--top-k", "N", "sample from the N most likely tokens; 0 means all",
             IntegerValue(&options->top_k, 0, kMaxInt32));
  flags->Add("--min-p", "X",
             "sample from tokens with at least this share of the most likely token's probability, "
             "in [0, 1]",
             RealValue(&options->min_p, 0, 1, Border::kIncluded));
}

void AddLogitsFlags(RequestOptions* options, Flags* flags) {
  flags->Add("--repetition-penalty", "X",
             "divide positive logits of tokens in prompt or answer by this, and multiply negative "
             "ones by it; 1 means no penalty",
             RealValue(&options->repetition_penalty, 0.01, 100, Border::kIncluded));
  flags->Add("--presence-penalty", "X",
             "subtract this from the logits of tokens that the answer already has, in [-2, 2]",
             RealValue(&options->presence_penalty, -2, 2, Border::kIncluded));
  flags->Add("--frequency-penalty", "X",
             "subtract this from a token's logit once for each time that the answer already has "
             "the token, in [-2, 2]",
             RealValue(&options->frequency_penalty, -2, 2, Border::kIncluded));
  flags->Add("--logit-bias", "ID=X",
             "add X, in [-100, 100], to the logit of token ID; may be given several times",
             LogitBiasValue(&options->logit_bias));
  flags->Add("--allowed-token-ids", "ID",
             "generate only this token; may be given several times, to allow several tokens",
             TokenIdListValue(&options->allowed_token_ids));
  flags->Add("--bad-words", "TEXT",
             "never generate the token sequence of this text; may be given several times",
             TextListValue(&options->bad_words));
}

Flags::Apply FileValue(std::optional<std::string>* out) {
  return [=](const std::string& path) -> absl::Status {
    if (absl::StartsWith(path, "{")) {
      return absl::InvalidArgumentError("this is JSON; write it to a file, and give the file");
    }
    BH_ASSIGN_OR_RETURN(*out, ReadWholeFile(path, kMaxSchemaBytes));
    return absl::OkStatus();
  };
}

// Refused if a form other than `own`, a field of the options, is given.
Flags::Apply OnlyForm(const RequestOptions* options, const void* own, Flags::Apply apply) {
  Flags::Apply only = [=](const std::string& text) -> absl::Status {
    if ((options->json_schema && own != &options->json_schema) ||
        (options->regex && own != &options->regex) ||
        (!options->choice.empty() && own != &options->choice)) {
      return absl::InvalidArgumentError(
          "the answer can have only one constraint: give one of --json-schema, --regex and "
          "--choice");
    }
    return apply(text);
  };
  only.appends = apply.appends;
  return only;
}

void AddFormFlags(RequestOptions* options, Flags* flags) {
  flags->Add("--json-schema", "FILE", "file with a JSON schema that the answer must match",
             OnlyForm(options, &options->json_schema, FileValue(&options->json_schema)));
  flags->Add("--regex", "PATTERN", "regular expression that the whole answer must match",
             OnlyForm(options, &options->regex, TextValue(&options->regex)));
  flags->Add("--choice", "TEXT", "text that the answer may be; give the flag once for each choice",
             OnlyForm(options, &options->choice, TextListValue(&options->choice)));
}

void AddCredentialFlags(ClientCredentials* credentials, Flags* flags) {
  flags->Add("--api-key-file", "FILE",
             "file with the API key to send to the server (default: the key in the environment "
             "variable BULKHEAD_API_KEY, if any)",
             TextValue(&credentials->api_key_file));
  flags->Add("--ssl-ca-certs", "FILE",
             "connect with TLS, and accept server certificates of these authorities, in PEM format "
             "(default: no TLS)",
             TextValue(&credentials->ssl_ca_certs));
  flags->Add("--ssl-certfile", "FILE", "certificate of this client, in PEM format",
             TextValue(&credentials->ssl_certfile));
  flags->Add("--ssl-keyfile", "FILE", "private key of the client certificate, in PEM format",
             TextValue(&credentials->ssl_keyfile));
}

}  // namespace

void AddServerFlags(std::string* target, ClientCredentials* credentials, Flags* flags) {
  flags->Group("Server");
  flags->Add("--target", "HOST:PORT", "gRPC address of the server (default 127.0.0.1:50051)",
             TargetValue(target));
  AddCredentialFlags(credentials, flags);
}

void AddRequestFlags(RequestOptions* options, Flags* flags) {
  flags->Group(
      "Request (a line of a prompts file overrides these flags; otherwise the model's defaults "
      "apply)");
  flags->Add("--max-tokens", "N", "maximum number of tokens to generate",
             IntegerValue(&options->max_tokens, 0, kMaxInt32));
  flags->Add("--min-tokens", "N",
             "minimum number of tokens to generate; stop conditions are ignored before that",
             IntegerValue(&options->min_tokens, 0, kMaxInt32));
  AddSamplingFlags(options, flags);
  AddLogitsFlags(options, flags);
  flags->Add("--seed", "N",
             "random seed; the same seed gives the same text (default: generated and reported)",
             SeedValue(&options->seed));
  flags->Add("--stop", "TEXT", "end the answer before this text; may be given several times",
             TextListValue(&options->stop));
  flags->Add("--stop-token-ids", "ID", "end the answer at this token; may be given several times",
             TokenIdListValue(&options->stop_token_ids));
  flags->AddSwitch("--ignore-eos", "continue after the model's end-of-sequence token",
                   [options](bool on) { options->ignore_eos = on; });
  flags->Add("--logprobs", "N",
             "return the log probabilities of each generated token and of the N most likely ones "
             "in its place, 0 to 20",
             IntegerValue(&options->logprobs, 0, 20));
  flags->Add("--prompt-logprobs", "N",
             "return the log probabilities of each prompt token and of the N most likely ones in "
             "its place, 0 to 20; --max-tokens may then be 0",
             IntegerValue(&options->prompt_logprobs, 0, 20));
  flags->Add("--truncate-prompt-tokens", "N", "keep only the last N tokens of a longer prompt",
             IntegerValue(&options->truncate_prompt_tokens, 1, kMaxInt32));
  flags->Add("--time-limit-ms", "N",
             "end the answer this many milliseconds after the request arrived",
             IntegerValue(&options->time_limit_ms, 1, kMaxInt32));
  flags->AddSwitch("--no-special-tokens",
                   "do not add the tokenizer's special tokens to a text prompt",
                   [options](bool on) { options->add_special_tokens = !on; });
  flags->Add("--priority", "N",
             "priority of the request for a server with --scheduling-policy priority; higher is "
             "more urgent (default 0)",
             IntegerValue(&options->priority, std::numeric_limits<int32_t>::min(), kMaxInt32));
  AddFormFlags(options, flags);
}

absl::StatusOr<Command> ParseGenerate(CommandArgs args) {
  Flags flags("generate", "[FLAGS] [PROMPT...]",
              "Sends prompts to a server and streams the answers. Without a prompt argument it\n"
              "reads one prompt from standard input. Ctrl-C cancels the requests.",
              "bulkhead generate --max-tokens 64 \"Once upon a time\"\n"
              "bulkhead generate --prompts prompts.jsonl --concurrency 16 --json > answers.jsonl");
  GenerateOptions options;
  AddServerFlags(&options.target, &options.credentials, &flags);
  flags.Add(
      "--timeout", "TIME",
      "time limit for each request, in seconds or with a unit (90s, 2m) (default: none; a request "
      "that is refused because the server's queue is full is sent again for up to 2 minutes)",
      DurationValue(&options.timeout));
  flags.Group("Prompts and answers");
  flags.Add("--prompts", "FILE",
            "file of JSON lines, or - for standard input: {\"prompt\": \"text\"} or "
            "{\"prompt_token_ids\": [1, 2]}, and optional request fields such as max_tokens and "
            "temperature",
            TextValue(&options.prompts_file));
  flags.Add("--concurrency", "N", "maximum number of requests in flight (default 1)",
            IntegerValue(&options.concurrency, 1, kMaxConcurrency));
  flags.AddSwitch("--json", "print one JSON line per prompt, in the order of the prompts",
                  &options.json);
  flags.AddSwitch("--stats", "print tokens/s on standard error (always printed on a terminal)",
                  &options.stats);
  flags.AddHidden("--prompt", [&options](const std::string& text) {
    options.prompts.push_back(text);
    return absl::OkStatus();
  });
  flags.AddPositional("--prompt", std::numeric_limits<int>::max());
  flags.Add("--model", "NAME",
            "name of the model or of a LoRA adapter (default: the model without an adapter)",
            TextValue(&options.model));
  AddRequestFlags(&options.request, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  if (options.prompts_file.has_value() && !options.prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--prompts ", *options.prompts_file,
                                                   " and the prompt '", options.prompts[0],
                                                   "' exclude each other"));
  }
  for (const auto& [flag, value] : {std::pair("--logprobs", options.request.logprobs),
                                    {"--prompt-logprobs", options.request.prompt_logprobs}}) {
    if (!value.has_value() || options.json) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": log probabilities are printed only with --json; add it"));
  }
  return options;
}

absl::StatusOr<Command> ParseChat(CommandArgs args) {
  Flags flags("chat", "[FLAGS]",
              "Chats with the model of a server that was started with --http-port. In a terminal\n"
              "it holds a conversation: /help lists its commands, Ctrl-C stops an answer.\n"
              "Otherwise it sends standard input as one message.",
              "bulkhead chat --system \"Answer in one sentence.\"\n"
              "bulkhead chat --temperature 0 --max-tokens 64 < question.txt");
  ChatOptions options;
  flags.Group("Server");
  flags.Add("--http", "HOST:PORT", "HTTP address of the server (default 127.0.0.1:8000)",
            TargetValue(&options.http));
  AddCredentialFlags(&options.credentials, &flags);
  flags.Add("--model", "NAME",
            "name of the model or of a LoRA adapter (default: the model without an adapter)",
            TextValue(&options.model));
  flags.Group("Conversation (flags that are not given have the model's defaults)");
  flags.Add("--system", "TEXT", "system message at the start of the conversation",
            TextValue(&options.system));
  flags.Add("--max-tokens", "N", "maximum number of tokens of each answer",
            IntegerValue(&options.request.max_tokens, 1, kMaxInt32));
  AddSamplingFlags(&options.request, &flags);
  flags.Add("--seed", "N", "random seed; the same seed gives the same answers",
            SeedValue(&options.request.seed));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  return options;
}

absl::StatusOr<Command> ParseTokenize(CommandArgs args) {
  Flags flags("tokenize", "[--model] DIR < LINES",
              "Reads JSON lines from standard input and prints one line for each:\n"
              "  {\"text\": \"...\", \"add_special_tokens\": true} -> {\"ids\": [...]}\n"
              "  {\"ids\": [...], \"skip_special_tokens\": true} -> {\"text\": \"...\"}",
              "echo '{\"text\": \"Hello\"}' | bulkhead tokenize --model DIR");
  TokenizeOptions options;
  flags.Group("Model");
  flags.Add("--model", "DIR",
            "folder with a tokenizer.json, or org/name of a model in the local Hugging Face cache",
            ModelValue(&options.model, ", and the texts on standard input"));
  flags.AddPositional("--model", 1);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  if (options.model.empty()) {
    return absl::InvalidArgumentError("--model is missing; write 'bulkhead tokenize --model DIR'");
  }
  return options;
}

absl::StatusOr<Command> ParseDrain(CommandArgs args) {
  Flags flags("drain", "[FLAGS]",
              "Tells a server to refuse new requests, finish the running ones and stop, and\n"
              "waits until it has stopped.",
              "bulkhead drain --target 127.0.0.1:50051 --timeout 30");
  DrainOptions options;
  AddServerFlags(&options.target, &options.credentials, &flags);
  flags.Add("--timeout", "TIME",
            "time that running requests have to finish, in seconds or with a unit (90s, 2m) "
            "(default: the server's --drain-timeout)",
            DurationValue(&options.timeout));
  flags.AddSwitch("--no-wait",
                  "return as soon as draining has started, without waiting for its end",
                  [&options](bool on) { options.wait = !on; });
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  return options;
}

absl::StatusOr<Command> ParseLimits(CommandArgs args) {
  Flags flags(
      "limits", "[FLAGS]",
      "Shows or changes the limits of a running server. Limits can be lowered, and raised\n"
      "again up to those that it was started with. New limits apply from the next step on,\n"
      "but not to requests that are already accepted.",
      "bulkhead limits --max-num-seqs 8 --max-num-queued-reqs 0\n"
      "bulkhead limits --reset");
  LimitsOptions options;
  AddServerFlags(&options.target, &options.credentials, &flags);
  flags.Group("Limits");
  flags.Add("--max-num-seqs", "N", "maximum number of sequences that run at the same time",
            IntegerValue(&options.max_num_seqs, 1, kMaxInt32));
  flags.Add("--max-model-len", "N",
            "maximum number of tokens of a sequence, prompt and answer together",
            IntegerValue(&options.max_model_len, 2, kMaxInt32));
  flags.Add("--max-num-queued-reqs", "N", "maximum number of waiting requests",
            IntegerValue(&options.max_num_queued_reqs, 0, kMaxInt32));
  flags.AddSwitch("--reset", "first reset all limits to those that the server was started with",
                  &options.reset);
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  return options;
}

absl::StatusOr<Command> ParseDoctor(CommandArgs args) {
  Flags flags("doctor", "[FLAGS]",
              "Shows what limits the memory of a running server, now and since it became ready,\n"
              "and which one setting to change first; or explains a report of 'serve --report'\n"
              "or 'plan --json'.",
              "bulkhead doctor --target 127.0.0.1:50051\n"
              "bulkhead doctor --watch 2s --for 5m\n"
              "bulkhead doctor --report report.json\n"
              "bulkhead doctor --capture handover");
  DoctorOptions options;
  AddServerFlags(&options.target, &options.credentials, &flags);
  flags.AddSwitch("--json", "print the findings and the figures that they are based on as JSON",
                  &options.json);
  flags.Add("--watch", "TIME",
            "observe the server at this interval, and tell values that rise and fall with the "
            "traffic from values that do not",
            DurationValue(&options.watch));
  flags.Add("--for", "TIME", "how long to watch (default: until Ctrl-C)",
            DurationValue(&options.watch_for));
  flags.Add("--capture", "DIR",
            "save the memory, limits, counters and config of every rank there, for a bug report",
            TextValue(&options.capture));
  flags.Group("Report");
  flags.Add("--report", "FILE", "explain this report; no server is needed",
            TextValue(&options.report));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  if (options.report.has_value() && (options.watch.has_value() || options.capture.has_value())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--report ", *options.report, " needs no server, and ",
        options.watch.has_value() ? "--watch" : "--capture", " does; give one of them"));
  }
  if (options.json &&
      (options.report.has_value() || options.watch.has_value() || options.capture.has_value())) {
    return absl::InvalidArgumentError(
        "--json prints one snapshot of a running group: leave out --watch, --capture and --report");
  }
  if (options.watch_for.has_value() && !options.watch.has_value()) {
    return absl::InvalidArgumentError("--for needs --watch; give both, as in --watch 2s --for 5m");
  }
  return options;
}

}  // namespace bulkhead
