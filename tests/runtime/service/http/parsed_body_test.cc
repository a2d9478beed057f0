#include "runtime/service/http/parsed_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "runtime/service/service_core.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

// Keeps the answer; runs work at once.
class FakeExchange final : public HttpExchange {
 public:
  void Post(std::function<void()> work) override { work(); }
  std::function<bool()> Dropper() override { return nullptr; }
  void WhenGone(std::function<void()> /*gone*/) override {}
  void Answer(HttpAnswer answer, Written /*written*/) override {
    status = answer.status;
    while (!answer.body.Produce(&text)) {
    }
    answered.Notify();
  }
  void BeginEvents() override {}
  void Send(BodyParts /*parts*/, Written /*written*/) override {}
  void Finish(Written /*written*/) override {}

  int status = 0;
  std::string text;
  absl::Notification answered;
};

TEST(ServeParsedTest, AnExceptionOfTheJsonLibraryEndsItsRequestAlone) {
  auto core = std::make_unique<ServiceCore>(HostQuotas());
  const HttpContext context{.core = core.get(),
                            .chats = absl::UnimplementedError("no chats"),
                            .started_unix_s = 0,
                            .metrics = MetricsPage(core.get())};
  for (const size_t bytes : {size_t{16}, 2 * TextWorker::kLongTextBytes}) {
    const auto exchange = std::make_shared<FakeExchange>();
    HttpRequest request;
    request.path = "/v1/completions";
    request.body = R"({"model": 1})" + std::string(bytes, ' ');
    ServeParsed(context, std::move(request), exchange, [](ParsedRequest parsed) {
      return absl::UnknownError(parsed.body.at("model").get<std::string>());
    });
    exchange->answered.WaitForNotification();
    EXPECT_EQ(exchange->status, 500);
    EXPECT_THAT(exchange->text, HasSubstr("a bug in reading /v1/completions"));
  }
  core = nullptr;  // its text worker refers to the context
}

TEST(ServeParsedTest, ALongBodyHasArrivedBeforeTheTextWorkerHasTimeForIt) {
  auto core = std::make_unique<ServiceCore>(HostQuotas());
  const HttpContext context{.core = core.get(),
                            .chats = absl::UnimplementedError("no chats"),
                            .started_unix_s = 0,
                            .metrics = MetricsPage(core.get())};
  for (const size_t bytes : {size_t{16}, 2 * TextWorker::kLongTextBytes}) {
    absl::Notification release;
    ASSERT_TRUE(core->text_worker.Post(1, [&release] { release.WaitForNotification(); }).ok());
    const auto exchange = std::make_shared<FakeExchange>();
    HttpRequest request;
    request.body = "{}" + std::string(bytes, ' ');
    RequestOrigin origin;
    const auto before = static_cast<uint64_t>(MonotonicNanos());
    ServeParsed(context, std::move(request), exchange, [&origin](ParsedRequest parsed) {
      origin = parsed.origin;
      return absl::CancelledError("seen");
    });
    const auto after = static_cast<uint64_t>(MonotonicNanos());
    release.Notify();
    exchange->answered.WaitForNotification();
    EXPECT_EQ(origin.on_text_worker, bytes > TextWorker::kLongTextBytes);
    EXPECT_GE(origin.arrived_ns, before);
    EXPECT_LE(origin.arrived_ns, after);
  }
  core = nullptr;  // its text worker refers to the context
}

}  // namespace
}  // namespace bulkhead
