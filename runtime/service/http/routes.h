// What the HTTP front end answers, by method and path.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/service/http/chat_parts.h"
#include "runtime/service/http/http_exchange.h"
#include "runtime/service/metrics/metrics_page.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// What handlers need. Outlives every exchange.
struct HttpContext {
  ServiceCore* core = nullptr;
  // FAILED_PRECONDITION (TEXT_NOT_SUPPORTED): why there are no chats.
  ChatsOr chats;
  int64_t started_unix_s = 0;
  MetricsPage metrics;
  // Answers of /metrics and /status that are being made or sent.
  std::shared_ptr<std::atomic<int>> scrapes = std::make_shared<std::atomic<int>>(0);
};

using ExchangePointer = std::shared_ptr<HttpExchange>;

enum class RouteSet { kAll, kMetricsOnly };

class Routes {
 public:
  Routes(ServiceCore* core, ChatsOr chats, RouteSet set = RouteSet::kAll);
  // Answers now or later. Call on the front end's thread.
  void Serve(HttpRequest request, const ExchangePointer& exchange);
  // The roles of which a caller needs one.
  RoleSet NeedOf(const HttpRequest& request) const;
  // Whether Serve reads the body; otherwise it answers at once, from the head.
  bool TakesBody(const HttpRequest& request) const;

 private:
  HttpContext context_;
  const RouteSet set_;
};

// Answers with an error; counted by its reason.
void AnswerError(const HttpContext& context, const ExchangePointer& exchange,
                 const absl::Status& status, int http_status = 0);

// Handlers. Without the engine:
void ServeModels(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
// For kModelsPath followed by a model's name.
inline constexpr absl::string_view kModelsPath = "/v1/models/";
void ServeModel(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeHealth(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeLive(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeVersion(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeLoad(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeMetrics(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeStatus(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServePage(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
// With one answer:
void ServeTokenize(const HttpContext& context, HttpRequest request,
                   const ExchangePointer& exchange);
void ServeDetokenize(const HttpContext& context, HttpRequest request,
                     const ExchangePointer& exchange);
void ServeScore(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
// Generations:
void ServeCompletions(const HttpContext& context, HttpRequest request,
                      const ExchangePointer& exchange);
void ServeEmbeddings(const HttpContext& context, HttpRequest request,
                     const ExchangePointer& exchange);
void ServeChat(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange);
void ServeResponses(const HttpContext& context, HttpRequest request,
                    const ExchangePointer& exchange);

}  // namespace bulkhead
