// The routes that say what is served, and whether.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

void AnswerJson(const ExchangePointer& exchange, std::string json) {
  exchange->Answer({.headers = {}, .body = BodyParts(std::move(json))}, [](bool) {});
}

}  // namespace

void ServeModels(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForControl(v1::GetModelInfoRequest());
  if (!parts.ok()) return AnswerError(context, exchange, parts.status());
  std::string list;
  for (const std::string& name : (*parts)->rules.served_model_names) {
    absl::StrAppend(&list, list.empty() ? "" : ",", "{\"id\":", JsonString(name),
                    ",\"object\":\"model\",\"created\":", context.started_unix_s,
                    ",\"owned_by\":\"bulkhead\",\"root\":", JsonString(name),
                    ",\"parent\":null,\"max_model_len\":", (*parts)->rules.max_model_len, "}");
  }
  AnswerJson(exchange, absl::StrCat("{\"object\":\"list\",\"data\":[", list, "]}"));
}

void ServeHealth(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  const auto parts = context.core->state.ForNewRequest();
  // A probe's answer is no error of a call.
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

}  // namespace bulkhead
