// The routes of one call with one answer: tokenize, detokenize, score.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/chat_parts.h"
#include "runtime/service/http/chat_request.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/service/http/generation_run.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/parsed_body.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/local_call.h"
#include "runtime/service/message_request.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/service/score_call.h"
#include "runtime/service/tokenize.h"

namespace bulkhead {
namespace {

// One call with one message, and its answer. Owns itself until the call is closed.
class OneCall final : public CallTransport, public std::enable_shared_from_this<OneCall> {
 public:
  using ToJson = std::function<BodyParts(std::shared_ptr<const std::string> message)>;
  OneCall(const HttpContext& context, ExchangePointer exchange, ToJson to_json)
      : context_(context), exchange_(std::move(exchange)), to_json_(std::move(to_json)) {}

  void Start(std::shared_ptr<Call> call, std::unique_ptr<CallRequest> request) {
    self_ = shared_from_this();
    call_ = std::move(call);
    exchange_->Post(
        [self = self_] { self->exchange_->WhenGone([self] { self->call_->OnCancelled(false); }); });
    call_->Start(std::move(request));
  }

  void Write(MessagePieces /*message*/) override {}
  void SetTrailer(const std::string& /*key*/, const std::string& /*value*/) override {}
  std::function<bool()> Dropper() override { return exchange_->Dropper(); }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override {
    auto message = std::make_shared<std::string>();
    for (const std::string& piece : last.value_or(MessagePieces())) *message += piece;
    exchange_->Post([self = shared_from_this(), status, message = std::move(message)] {
      HttpAnswer answer;
      if (status.ok()) {
        answer.body = self->to_json_(message);
      } else {
        answer =
            ErrorAnswer(WithFieldsRenamed(status, {{"token_ids", "tokens"}, {"text", "prompt"}}));
      }
      self->exchange_->Answer(std::move(answer), [self](bool) { self->Close(); });
    });
  }

 private:
  void Close() {
    const auto self = std::exchange(self_, nullptr);
    if (self == nullptr) return;
    call_->OnClosed();
    context_.core->host.open_calls.Sub(1);
  }

  const HttpContext& context_;
  const ExchangePointer exchange_;
  const ToJson to_json_;
  std::shared_ptr<Call> call_;
  std::shared_ptr<OneCall> self_;
};

template <typename Message>
absl::Status RunOne(const HttpContext& context, const ExchangePointer& exchange, Message message,
                    const RequestOrigin& origin, OneCall::ToJson to_json,
                    const std::function<std::shared_ptr<Call>(CallTransport*)>& make) {
  BH_RETURN_IF_ERROR(context.core->TakeCalls(1));
  const auto one = std::make_shared<OneCall>(context, exchange, std::move(to_json));
  one->Start(make(one.get()), std::make_unique<MessageRequest>(std::move(message), origin));
  return absl::OkStatus();
}

// Adds the ids of a v1::TokenIds in `field`.
void AddIdsOf(const std::shared_ptr<const std::string>& message, int field, BodyParts* parts,
              const Tokenizer* spelt = nullptr) {
  const absl::string_view ids = BytesOf(*message, field);
  AddTokenIds({message, BytesOf(ids, v1::TokenIds::kIdsFieldNumber)}, std::nullopt, parts, spelt);
}

absl::Status CheckModel(const ServingParts& parts, JsonFields& fields) {
  std::optional<std::string> model;
  BH_RETURN_IF_ERROR(fields.Read("model", &model));
  BH_RETURN_IF_ERROR(ReadUnused(fields));
  v1::GenerateRequest named;
  named.set_model(model.value_or(""));
  return CheckNames(named, parts.rules);
}

absl::StatusOr<std::string> ConversationText(const HttpContext& context, JsonFields& fields,
                                             bool on_text_worker) {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ChatParts> chats, context.chats);
  ChatRequest chat;
  BH_RETURN_IF_ERROR(ReadConversation(fields, &chat));
  return RenderedPrompt(*chats, chat, context.core->quotas, on_text_worker);
}

absl::Status Tokenized(const HttpContext& context, const ExchangePointer& exchange,
                       const ParsedRequest& parsed) {
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForControl(v1::TokenizeRequest()));
  JsonFields fields(parsed.body);
  BH_RETURN_IF_ERROR(CheckModel(*parts, fields));
  std::optional<std::string> prompt;
  std::optional<bool> add_special, spelt;
  if (fields.Find("messages") != nullptr) {
    BH_ASSIGN_OR_RETURN(prompt, ConversationText(context, fields, parsed.origin.on_text_worker));
    add_special = false;
  } else {
    BH_RETURN_IF_ERROR(fields.Read("prompt", &prompt));
  }
  BH_RETURN_IF_ERROR(fields.Read("add_special_tokens", &add_special));
  BH_RETURN_IF_ERROR(fields.Read("return_token_strs", &spelt));
  BH_RETURN_IF_ERROR(fields.Finish());
  if (!prompt.has_value()) return InvalidField("prompt", "is missing; send a string, or messages");
  v1::TokenizeRequest message;
  message.set_text(*std::move(prompt));
  if (add_special.has_value()) message.set_add_special_tokens(*add_special);
  const auto to_json = [rules = RulesNow(*parts),
                        spelt](const std::shared_ptr<const std::string>& answer) {
    constexpr int kIds = v1::TokenizeResponse::kTokenIdsFieldNumber;
    v1::TokenIds ids;
    ids.ParseFromString(std::string(BytesOf(*answer, kIds)));
    BodyParts out(absl::StrCat("{\"count\":", ids.ids_size(),
                               ",\"max_model_len\":", rules.max_model_len, ",\"tokens\":["));
    AddIdsOf(answer, kIds, &out);
    if (spelt.value_or(false)) {
      out.Add("],\"token_strs\":[");
      AddIdsOf(answer, kIds, &out, rules.tokenizer);
    }
    out.Add("]}");
    return out;
  };
  return RunOne(context, exchange, std::move(message), parsed.origin, to_json,
                [core = context.core](CallTransport* transport) {
                  return std::make_shared<LocalCall>(core, transport, LocalCall::Kind::kWork,
                                                     Tokenize);
                });
}

absl::Status Detokenized(const HttpContext& context, const ExchangePointer& exchange,
                         const ParsedRequest& parsed) {
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForControl(v1::DetokenizeRequest()));
  JsonFields fields(parsed.body);
  BH_RETURN_IF_ERROR(CheckModel(*parts, fields));
  const Json* tokens = fields.Find("tokens");
  BH_RETURN_IF_ERROR(fields.Finish());
  if (tokens == nullptr) return InvalidField("tokens", "is missing; send a list of token ids");
  if (!tokens->is_array()) return WrongValue("tokens", *tokens, "a list of token ids");
  BH_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, TokenIdsOf(*tokens, "tokens"));
  v1::DetokenizeRequest message;
  message.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  message.set_skip_special_tokens(false);
  const auto to_json = [](const std::shared_ptr<const std::string>& answer) {
    BodyParts out("{\"prompt\":\"");
    out.AddEscaped(BytesOf(*answer, v1::DetokenizeResponse::kTextFieldNumber), answer);
    out.Add("\"}");
    return out;
  };
  return RunOne(context, exchange, std::move(message), parsed.origin, to_json,
                [core = context.core](CallTransport* transport) {
                  return std::make_shared<LocalCall>(core, transport, LocalCall::Kind::kWork,
                                                     Detokenize);
                });
}

// JSON has no infinity, which a perplexity of very unlikely tokens is.
std::string FiniteJson(double value) {
  return absl::StrFormat("%.17g", std::min(value, std::numeric_limits<double>::max()));
}

BodyParts ScoreJson(const std::string& id, const std::string& model,
                    const std::shared_ptr<const std::string>& answer) {
  v1::ScoreResponse score;
  score.ParseFromString(*answer);
  BodyParts out(absl::StrCat(
      "{\"id\":", JsonString(id), ",\"object\":\"score\",\"model\":", JsonString(model),
      ",\"nll\":", FiniteJson(score.nll()), ",\"perplexity\":", FiniteJson(score.perplexity()),
      ",\"usage\":",
      UsageJson({.prompt_tokens = static_cast<uint64_t>(score.token_ids().ids_size())}),
      ",\"token_ids\":["));
  AddIdsOf(answer, v1::ScoreResponse::kTokenIdsFieldNumber, &out);
  out.Add("],\"token_logprobs\":[");
  out.AddPart([score = std::move(score), next = 0](std::string* bytes) mutable {
    const size_t enough = bytes->size() + BodyParts::kSliceBytes;
    for (; next < score.token_logprobs_size() && bytes->size() < enough; ++next) {
      absl::StrAppendFormat(bytes, "%s%.9g", next == 0 ? "" : ",", score.token_logprobs(next));
    }
    return next == score.token_logprobs_size();
  });
  out.Add("]}");
  return out;
}

absl::Status Scored(const HttpContext& context, const ExchangePointer& exchange,
                    const ParsedRequest& parsed) {
  JsonFields fields(parsed.body);
  v1::ScoreRequest message;
  std::optional<std::string> model;
  BH_RETURN_IF_ERROR(fields.Read("model", &model));
  message.set_model(model.value_or(""));
  BH_RETURN_IF_ERROR(ReadUnused(fields));
  BH_RETURN_IF_ERROR(
      fields.Refuse({"text_1", "queries", "data_1"}, {},
                    "pairs are not scored, as vLLM's /v1/score does; this one takes prompt, and "
                    "gives the log probabilities of its tokens"));
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return InvalidField("prompt", "is missing; send a text or token ids");
  if (prompt->is_string()) {
    message.set_text(prompt->get<std::string>());
  } else if (prompt->is_array()) {
    BH_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, TokenIdsOf(*prompt, "prompt"));
    message.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  } else {
    return WrongValue("prompt", *prompt, "a text or a list of token ids");
  }
  std::optional<bool> add_special;
  BH_RETURN_IF_ERROR(fields.Read("add_special_tokens", &add_special));
  if (add_special.has_value()) message.set_add_special_tokens(*add_special);
  BH_RETURN_IF_ERROR(fields.Finish());
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForNewRequest());
  const std::string id = absl::StrCat("score-", context.core->NewRequestId());
  message.set_request_id(id);
  return RunOne(
      context, exchange, std::move(message), parsed.origin,
      [id, name = model.value_or(parts->rules.served_model_names.front())](
          const std::shared_ptr<const std::string>& answer) { return ScoreJson(id, name, answer); },
      [core = context.core](CallTransport* transport) {
        return std::make_shared<ScoreCall>(core, transport);
      });
}

}  // namespace

void ServeTokenize(const HttpContext& context, HttpRequest request,
                   const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange,
              [&context, exchange](const ParsedRequest& parsed) {
                return Tokenized(context, exchange, parsed);
              });
}

void ServeDetokenize(const HttpContext& context, HttpRequest request,
                     const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange,
              [&context, exchange](const ParsedRequest& parsed) {
                return Detokenized(context, exchange, parsed);
              });
}

void ServeScore(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange,
              [&context, exchange](const ParsedRequest& parsed) {
                return Scored(context, exchange, parsed);
              });
}

}  // namespace bulkhead
