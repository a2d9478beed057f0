// The routes that report what is served, and whether the server is ready.
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

void AnswerJson(const ExchangePointer& exchange, std::string json) {
  exchange->Answer({.headers = {}, .body = BodyParts(std::move(json))}, [](bool) {});
}

std::string ModelJson(const HttpContext& context, const std::string& name,
                      const RequestRules& rules) {
  const int adapter = AdapterNamed(name, rules);
  return absl::StrCat(
      "{\"id\":", JsonString(name), ",\"object\":\"model\",\"created\":", context.started_unix_s,
      ",\"owned_by\":\"bulkhead\",\"root\":",
      JsonString(adapter == 0 ? rules.model : rules.adapters[adapter - 1].dir),
      ",\"parent\":", adapter == 0 ? "null" : JsonString(rules.served_model_names.front()),
      ",\"max_model_len\":", rules.max_model_len, "}");
}

// "a%2Fb" is "a/b".
std::string PercentDecoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t byte = 0;
    const bool coded = text[i] == '%' && i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) &&
                       absl::ascii_isxdigit(text[i + 2]) &&
                       absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte);
    out += coded ? static_cast<char>(byte) : text[i];
    if (coded) i += 2;
  }
  return out;
}

}  // namespace

void ServeModels(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForControl(v1::GetModelInfoRequest());
  if (!parts.ok()) return AnswerError(context, exchange, parts.status());
  const RequestRules rules = RulesNow(**parts);
  std::string list;
  for (const std::string& name : ModelNames(rules)) {
    absl::StrAppend(&list, list.empty() ? "" : ",", ModelJson(context, name, rules));
  }
  AnswerJson(exchange, absl::StrCat("{\"object\":\"list\",\"data\":[", list, "]}"));
}

void ServeModel(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForControl(v1::GetModelInfoRequest());
  if (!parts.ok()) return AnswerError(context, exchange, parts.status());
  v1::GenerateRequest named;
  named.set_model(PercentDecoded(absl::StripPrefix(request.path, kModelsPath)));
  const absl::Status status = CheckNames(named, (*parts)->rules);
  if (!status.ok()) return AnswerError(context, exchange, status);
  AnswerJson(exchange, ModelJson(context, named.model(), RulesNow(**parts)));
}

void ServeHealth(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForNewRequest();
  // A probe's answer is not counted as a call's error.
  if (!parts.ok()) return exchange->Answer(ErrorAnswer(parts.status()), [](bool) {});
  AnswerJson(exchange, "{\"status\":\"ok\"}");
}

void ServeLive(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const ServingPhase phase = context.core->state.phase();
  if (phase == ServingPhase::kLost) {
    return exchange->Answer(ErrorAnswer(context.core->state.ForNewRequest().status()), [](bool) {});
  }
  AnswerJson(exchange, "{\"status\":\"live\"}");
}

void ServeVersion(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForControl(v1::GetServerInfoRequest());
  if (!parts.ok()) return AnswerError(context, exchange, parts.status());
  AnswerJson(exchange,
             absl::StrCat("{\"version\":", JsonString((*parts)->server_info.version()), "}"));
}

void ServeLoad(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForControl(v1::GetLoadRequest());
  if (!parts.ok()) return exchange->Answer(ErrorAnswer(parts.status()), [](bool) {});
  const v1::LoadInfo load = (*parts)->control->Load();
  const uint32_t requests = load.num_requests_running() + load.num_requests_waiting();
  AnswerJson(exchange, absl::StrCat("{\"server_load\":", requests, "}"));
}

}  // namespace bulkhead
