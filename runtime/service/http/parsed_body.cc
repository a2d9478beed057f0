#include "runtime/service/http/parsed_body.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"

namespace bulkhead {
namespace {

absl::Status ParseAndServe(HttpRequest& request, const RequestOrigin& origin,
                           const std::function<absl::Status(ParsedRequest)>& serve) {
  absl::StatusOr<Json> body = ParseBody(request.body);
  request.body = std::string();
  if (!body.ok()) return body.status();
  // The JSON library throws if a member has another type than asked for: our bug, which must not
  // end the group.
  try {
    return serve({*std::move(body), std::move(request.claim), origin});
  } catch (const std::exception& error) {
    const std::string what = absl::StrCat("a bug in reading ", request.path, ": ", error.what());
    BH_LOG(kError) << what;
    return absl::InternalError(what);
  }
}

}  // namespace

void ServeParsed(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange,
                 std::function<absl::Status(ParsedRequest parsed)> serve) {
  const auto arrived_ns = static_cast<uint64_t>(MonotonicNanos());
  const size_t bytes = request.body.size();
  auto taken = std::make_shared<HttpRequest>(std::move(request));
  const auto work = [&context, exchange, taken, arrived_ns, serve = std::move(serve)](bool posted) {
    const absl::Status status =
        ParseAndServe(*taken, {arrived_ns, /*on_text_worker=*/posted}, serve);
    if (status.ok()) return;
    exchange->Post([&context, exchange, status] { AnswerError(context, exchange, status); });
  };
  if (bytes <= TextWorker::kLongTextBytes) return work(false);
  const absl::Status posted =
      context.core->text_worker.Post(bytes, [work = std::move(work)] { work(true); });
  if (!posted.ok()) AnswerError(context, exchange, posted);
}

}  // namespace bulkhead
