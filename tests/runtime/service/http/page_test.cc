// The page at /, and /status, which it shows.
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/page/page_files.h"
#include "runtime/service/metrics/metrics_page.h"
#include "runtime/service/metrics/status_json.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageTest : public HttpServerTest {
 protected:
  PageTest() {
    HostQuotas quotas;
    quotas.max_http_connections = 8;
    quotas.metrics_bytes = MaxMetricsBytes(2);
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::ZeroDuration());
    server_ = nullptr;
    core_ = std::make_unique<ServiceCore>(quotas);
    auto server = HttpServer::Start({.host = "127.0.0.1", .port = 0}, core_.get());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void SetReady() {
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.model_info.set_served_model_name("let\"ters");
    parts.server_info.set_version("1.2");
    parts.limits = {
        .max_num_seqs = 4, .max_model_len = 1000, .block_tokens = 16, .num_kv_blocks = 200};
    parts.rank_table.set_binding_rank(1);
    parts.rank_table.set_binding_term("kv");
    for (int i = 0; i < 2; ++i) {
      v1::RankRow& rank = *parts.rank_table.add_ranks();
      rank.set_rank(i);
      rank.set_free_bytes(100 + i);
      v1::Arena& arena = *rank.add_arenas();
      arena.set_term("kv");
      arena.set_bytes(6400);
    }
    core_->SetReady(std::move(parts));
  }
  std::string Head(const std::string& path, const std::string& method = "GET") {
    const auto client = Connect();
    client->Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    return client->ReadUntil("\r\n\r\n");
  }
};

TEST_F(PageTest, ItsFilesAreServedBeforeTheModelIsLoadedAndLoadNothingElse) {
  ASSERT_EQ(PageFiles().size(), 3U);
  for (const PageFile& file : PageFiles()) {
    const std::string head = Head(std::string(file.path));
    EXPECT_THAT(head, HasSubstr("200 OK"));
    EXPECT_THAT(head, HasSubstr(absl::StrCat("Content-Type: ", file.content_type)));
    EXPECT_THAT(head, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
    EXPECT_THAT(head, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(head, Not(HasSubstr("Access-Control")));
    EXPECT_THAT(Head(std::string(file.path), "HEAD"), HasSubstr("200 OK"));
    EXPECT_THAT(file.text, Not(HasSubstr("https://")));
    EXPECT_THAT(file.text, Not(HasSubstr("innerHTML")));
  }
  EXPECT_THAT(std::string(PageFiles()[0].text), HasSubstr("</html>"));
  EXPECT_THAT(Head("/page.html"), HasSubstr("404"));
}

TEST_F(PageTest, TheStatusTellsGroupLoadMemoryAndCurve) {
  EXPECT_EQ(Get("/status").second["error"]["code"], "STARTING");
  v1::LoadInfo load;
  load.set_num_requests_running(3);
  load.set_num_requests_waiting(2);
  load.set_num_kv_blocks(200);
  load.set_num_kv_blocks_used(50);
  load.set_generation_tokens_total(77);
  load.set_num_steps_short_of_slots(5);
  engine_.SetLoad(load);
  EngineMetrics metrics(kTestModelLen);
  for (int i = 0; i < 100; ++i) metrics.first_token_seconds.Observe(0.5);
  engine_.SetMetrics(metrics);
  SetReady();
  const auto [code, status] = Get("/status");
  ASSERT_EQ(code, 200) << status;
  EXPECT_EQ(status["model"], "let\"ters");
  EXPECT_EQ(status["chats"], false);
  EXPECT_EQ(status["phase"], "serving");
  EXPECT_EQ(status["limits"]["max_num_seqs"], 4);
  EXPECT_EQ(status["requests"]["running"], 3);
  EXPECT_EQ(Get("/load").second, (json{{"server_load", 5}})) << "as vLLM's";
  EXPECT_EQ(status["kv_blocks"]["used"], 50);
  EXPECT_EQ(status["totals"]["generation_tokens"], 77);
  EXPECT_EQ(status["steps"]["short_of_slots"], 5);
  EXPECT_EQ(status["binding"], (json{{"rank", 1}, {"term", "kv"}}));
  EXPECT_EQ(status["ranks"][1]["free_bytes"], 101);
  EXPECT_EQ(status["ranks"][0]["arenas"]["kv"], 6400);
  // Of 200 blocks, 8 are one of 128 tokens, 63 one of 1,000.
  EXPECT_EQ(status["curve"], (json{{{"tokens", 128}, {"sequences", 25}},
                                   {{"tokens", 256}, {"sequences", 12}},
                                   {{"tokens", 512}, {"sequences", 6}},
                                   {{"tokens", 1000}, {"sequences", 3}}}));
  EXPECT_EQ(status["first_token_seconds"]["count"], 100);
  EXPECT_GT(status["first_token_seconds"]["p50"], 0.25);
  EXPECT_LE(status["first_token_seconds"]["p99"], 0.5);
  EXPECT_TRUE(status["inter_token_seconds"]["p50"].is_null());
}

TEST_F(PageTest, AStatusBeyondItsShareOfMemoryIsRefused) {
  core_->Stop(absl::ZeroDuration());
  server_->Shutdown(absl::ZeroDuration());
  HostQuotas quotas;
  quotas.max_http_connections = 8;
  quotas.metrics_bytes = 100;
  Begin(quotas);
  const auto [code, status] = Get("/status");
  EXPECT_EQ(code, 503);
  EXPECT_EQ(status["error"]["code"], "HOST_MEMORY");
}

}  // namespace
}  // namespace bulkhead
