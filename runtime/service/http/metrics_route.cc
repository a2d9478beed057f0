// GET /metrics and /status.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/metrics/metrics_page.h"
#include "runtime/service/metrics/status_json.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// One of a port's kMaxScrapes, held until the answer is written.
class ScrapeSlot {
 public:
  explicit ScrapeSlot(std::shared_ptr<std::atomic<int>> scrapes)
      : scrapes_(std::move(scrapes)), is_taken_(scrapes_->fetch_add(1) < kMaxScrapes) {}
  ~ScrapeSlot() { scrapes_->fetch_sub(1); }
  ScrapeSlot(const ScrapeSlot&) = delete;
  ScrapeSlot& operator=(const ScrapeSlot&) = delete;
  bool is_taken() const { return is_taken_; }

 private:
  const std::shared_ptr<std::atomic<int>> scrapes_;
  const bool is_taken_;
};

// `text_of` makes the answer.
void ServeReading(const HttpContext& context, const ExchangePointer& exchange,
                  const std::string& content_type,
                  const std::function<absl::StatusOr<std::string>()>& text_of) {
  auto slot = std::make_shared<ScrapeSlot>(context.scrapes);
  if (!slot->is_taken()) {
    return AnswerError(
        context, exchange,
        WithReason(absl::UnavailableError("too many answers of /metrics and /status are being "
                                          "sent on this port; try again later"),
                   reason::kTooManyCalls));
  }
  absl::StatusOr<std::string> text = text_of();
  // Like a probe's: not counted as a call's error.
  if (!text.ok()) return exchange->Answer(ErrorAnswer(text.status()), [](bool) {});
  exchange->Answer({.content_type = content_type,
                    .headers = {{"Cache-Control", "no-store"}},
                    .body = BodyParts(*std::move(text))},
                   [slot = std::move(slot)](bool) {});
}

}  // namespace

void ServeMetrics(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  ServeReading(context, exchange, kMetricsContentType, [&] { return context.metrics.Text(); });
}

void ServeStatus(const HttpContext& context, HttpRequest, const ExchangePointer& exchange) {
  ServeReading(context, exchange, "application/json", [&] {
    return StatusJson(*context.core, context.started_unix_s, context.chats.ok());
  });
}

}  // namespace bulkhead
