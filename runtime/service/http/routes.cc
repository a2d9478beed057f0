#include "runtime/service/http/routes.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

struct Route {
  absl::string_view method;
  absl::string_view path;
  void (*serve)(const HttpContext&, HttpRequest, const ExchangePointer&);
  RoleSet need = kGenerateRole;
};

constexpr absl::string_view kMetricsPath = "/metrics";

constexpr Route kRoutes[] = {
    {"GET", "/v1/models", ServeModels},
    {"GET", kModelsPath, ServeModel},
    {"POST", "/v1/completions", ServeCompletions},
    {"POST", "/v1/chat/completions", ServeChat},
    {"POST", "/v1/responses", ServeResponses},
    {"POST", "/v1/score", ServeScore},
    {"POST", "/v1/embeddings", ServeEmbeddings},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"GET", "/health", ServeHealth, kNoRole},
    {"GET", "/ready", ServeHealth, kNoRole},
    {"GET", "/ping", ServeHealth, kNoRole},
    {"GET", "/live", ServeLive, kNoRole},
    {"GET", "/version", ServeVersion, kAllRoles},
    {"GET", "/load", ServeLoad, kAllRoles},
    {"GET", kMetricsPath, ServeMetrics, kMetricsRole},
    {"GET", "/status", ServeStatus, kAllRoles},
    {"GET", "/", ServePage, kNoRole},
    {"GET", "/page.css", ServePage, kNoRole},
    {"GET", "/page.js", ServePage, kNoRole},
};

// A route of kModelsPath also takes the rest of the path.
bool Takes(const Route& route, absl::string_view path) {
  if (route.path != kModelsPath) return route.path == path;
  return path.size() > kModelsPath.size() && absl::StartsWith(path, kModelsPath);
}

// The route whose path, with or without /v1, ends this one: for a base URL without /v1, with two,
// or with a route's path in it, or for an extra slash. "" if there is none.
absl::string_view MeantPath(absl::string_view path) {
  constexpr size_t kMostParts = 3;
  std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  if (parts.size() > kMostParts) parts.erase(parts.begin(), parts.end() - kMostParts);
  for (; !parts.empty(); parts.erase(parts.begin())) {
    const std::string end = absl::StrCat("/", absl::StrJoin(parts, "/"));
    for (const Route& route : kRoutes) {
      if (route.path == end || route.path == absl::StrCat("/v1", end)) return route.path;
    }
  }
  return "";
}

}  // namespace

Routes::Routes(ServiceCore* core, ChatsOr chats, RouteSet set)
    : context_{.core = core,
               .chats = std::move(chats),
               .started_unix_s = absl::ToUnixSeconds(absl::Now()),
               .metrics = MetricsPage(core)},
      set_(set) {}

void AnswerError(const HttpContext& context, const ExchangePointer& exchange,
                 const absl::Status& status, int http_status) {
  context.core->errors.Add(status);
  exchange->Answer(ErrorAnswer(status, http_status), [](bool) {});
}

RoleSet Routes::NeedOf(const HttpRequest& request) const {
  for (const Route& route : kRoutes) {
    if (set_ == RouteSet::kMetricsOnly && route.path != kMetricsPath) continue;
    if (Takes(route, request.path)) return route.need;
  }
  return kAllRoles;  // only callers with a role learn that there is no such route
}

bool Routes::TakesBody(const HttpRequest& request) const {
  return set_ == RouteSet::kAll && absl::c_any_of(kRoutes, [&](const Route& route) {
           return route.method == "POST" && request.method == "POST" && Takes(route, request.path);
         });
}

void Routes::Serve(HttpRequest request, const ExchangePointer& exchange) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::set<std::string> others;
  for (const Route& route : kRoutes) {
    if (!Takes(route, request.path)) continue;
    if (set_ == RouteSet::kMetricsOnly && route.path != kMetricsPath) continue;
    if (route.method != method) {
      others.insert(std::string(route.method));
      if (route.method == "GET") others.insert("HEAD");
      continue;
    }
    if (method == "POST" && request.content_type != "application/json") {
      return AnswerError(context_, exchange,
                         WithReason(absl::InvalidArgumentError(absl::StrCat(
                                        "Content-Type ", Quoted(request.content_type),
                                        " is not application/json; send JSON, and say so")),
                                    reason::kMalformedRequest),
                         415);
    }
    return route.serve(context_, std::move(request), exchange);
  }
  if (others.empty()) {
    const absl::string_view meant = MeantPath(request.path);
    return AnswerError(context_, exchange,
                       WithReason(absl::NotFoundError(absl::StrCat(
                                      "there is no ", Quoted(request.path),
                                      set_ != RouteSet::kAll ? " on this port; it has only /metrics"
                                      : !meant.empty() ? absl::StrCat("; did you mean ", meant, "?")
                                                       : "; docs/http.md lists what there is")),
                                  reason::kInvalidValue));
  }
  HttpAnswer answer =
      ErrorAnswer(WithReason(absl::InvalidArgumentError(absl::StrCat(
                                 Quoted(request.path), " takes ", absl::StrJoin(others, ", "),
                                 ", not ", Quoted(request.method))),
                             reason::kInvalidValue),
                  405);
  answer.headers.emplace_back("Allow", absl::StrJoin(others, ", "));
  context_.core->errors.AddReason(reason::kInvalidValue);
  exchange->Answer(std::move(answer), [](bool) {});
}

}  // namespace bulkhead
