// GET /metrics on the API's port and on a port of its own.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/service/metrics/metrics_page.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

class MetricsRouteTest : public HttpServerTest {
 protected:
  MetricsRouteTest() {
    HostQuotas quotas;
    quotas.metrics_bytes = MaxMetricsBytes(1);
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::ZeroDuration());
    Begin(quotas);  // no connection is for the API
    auto metrics = HttpServer::Start({.port = 0, .metrics_only = true}, core_.get());
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    metrics_ = *std::move(metrics);
  }
  ~MetricsRouteTest() override { metrics_->Shutdown(absl::ZeroDuration()); }

  std::string Head(const std::string& path) {
    HttpClient client(metrics_->target());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    return client.ReadAnswer().first;
  }

  std::unique_ptr<HttpServer> metrics_;
};

TEST_F(MetricsRouteTest, TheMetricsPortAnswersWhereTheApiTakesNoConnection) {
  EXPECT_EQ(Get("/metrics").first, 503);
  EXPECT_THAT(Head("/metrics"), testing::HasSubstr("200 OK"));
  EXPECT_THAT(Head("/metrics"), testing::HasSubstr(kMetricsContentType));
}

TEST_F(MetricsRouteTest, TheMetricsPortHasNothingElse) {
  EXPECT_THAT(Head("/v1/models"), testing::HasSubstr("404"));
  EXPECT_THAT(Head("/health"), testing::HasSubstr("404"));
}

TEST_F(MetricsRouteTest, ScrapesEndAndGiveTheirPlaceBack) {
  for (int i = 0; i < 3 * kMaxScrapes; ++i) {
    ASSERT_TRUE(absl::StrContains(Head("/metrics"), "200 OK")) << i;
  }
}

TEST_F(MetricsRouteTest, ConnectionsOfTheMetricsPortAreBounded) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < kMetricsConnections; ++i) {
    clients.push_back(std::make_unique<HttpClient>(metrics_->target()));
    // The second request is not whole, so the connection is not idle.
    clients.back()->Send("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\n");
    EXPECT_THAT(clients.back()->ReadUntil("\r\n\r\n"), testing::HasSubstr("200 OK"));
  }
  EXPECT_THAT(Head("/metrics"), testing::HasSubstr("503"));
  EXPECT_EQ(core_->host.metrics_connections.peak(), kMetricsConnections);
}

}  // namespace
}  // namespace bulkhead
