// The front end over sockets: refusals, limits, and clients that go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(HttpServerTest, AChoiceThatIsRefusedEndsTheOthers) {
  const auto client = Connect();
  engine_.RefuseWith(WithRetryAfter(
      WithReason(absl::ResourceExhaustedError("full"), reason::kQueueFull), absl::Seconds(2)));
  client->Post("/v1/completions", R"({"prompt": "a", "n": 2})");
  const Submitted second = engine_.Next();
  EXPECT_EQ(ReasonOf(engine_.WaitForCancel(second.request.request_id)), reason::kCancelled);
  const auto [head, body] = client->ReadAnswer();
  EXPECT_THAT(head, HasSubstr("429 Too Many Requests"));
  EXPECT_THAT(head, HasSubstr("Retry-After: 2\r\n"));
  EXPECT_EQ(json::parse(body)["error"]["code"], "QUEUE_FULL");
}

TEST_F(HttpServerTest, AClientThatHangsUpEndsItsGeneration) {
  for (const char* body : {R"({"prompt": "ab"})", R"({"prompt": "ab", "stream": true})"}) {
    const auto client = Connect();
    client->Post("/v1/completions", body);
    const Submitted submitted = engine_.Next();
    client->HangUp();
    EXPECT_EQ(ReasonOf(engine_.WaitForCancel(submitted.request.request_id)), reason::kCancelled);
  }
  WaitUntil([&] { return core_->host.open_calls.now() == 0; });
}

TEST_F(HttpServerTest, AFailureBehindTheFirstEventIsAnEvent) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "stream": true})");
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  client->ReadUntil("\"text\":\"c\"");
  submitted.Fail(absl::UnavailableError("gone"));
  const std::string rest = client->ReadUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":{\"message\":"));
  EXPECT_THAT(rest, HasSubstr("\"code\":\"RANK_LOST\""));
  EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
}

TEST_F(HttpServerTest, AReaderThatDoesNotReadIsToldSo) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "stream": true})");
  const Submitted submitted = engine_.Next();
  const std::string text(400'000, 'x');
  // More than the sockets hold, and than the service keeps for it.
  for (uint64_t i = 0; i < 40 && !engine_.WasCancelled(submitted.request.request_id); ++i) {
    submitted.Send(i, {'x'}, text);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ReasonOf(engine_.WaitForCancel(submitted.request.request_id)), reason::kSlowReader);
  EXPECT_THAT(client->ReadUntil("0\r\n\r\n"), HasSubstr("\"code\":\"SLOW_READER\""));
}

TEST_F(HttpServerTest, RefusalsHaveTheirStatus) {
  EXPECT_EQ(Ask("/v1/completions", R"({"model": "other", "prompt": "a"})").first, 404);
  EXPECT_EQ(Ask("/v1/completions", "{").first, 400);
  EXPECT_EQ(Ask("/v1/completions", R"({"prompt": "a", "best_of": 4})").first, 400);
  EXPECT_EQ(Ask("/v1/nothing", "{}").first, 404);
  for (const char* const path :
       {"/chat/completions", "/v1/chat/completions/", "//v1/chat/completions",
        "/v1/v1/chat/completions", "/v1/chat/completions/chat/completions",
        "/openai/deployments/a/chat/completions"}) {
    EXPECT_EQ(Ask(path, "{}").second["error"]["message"],
              absl::StrCat("there is no \"", path, "\"; did you mean /v1/chat/completions?"));
  }
  EXPECT_EQ(Ask("/completion", "{}").second["error"]["message"],
            "there is no \"/completion\"; docs/http.md lists what there is");
  EXPECT_EQ(Ask("/v1/embeddings", R"({"input": "a"})").first, 400);
  EXPECT_EQ(Ask("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})")
                .second["error"]["code"],
            "TEXT_NOT_SUPPORTED")
      << "there is no template";
  const auto client = Connect();
  client->Send(
      absl::StrCat("DELETE /v1/models/'", std::string(100, 'a'), " HTTP/1.1\r\nHost: a\r\n\r\n"));
  const auto [head, body] = client->ReadAnswer();
  EXPECT_THAT(head, AllOf(HasSubstr("405"), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(json::parse(body)["error"]["message"].get<std::string>(),
              AllOf(HasSubstr("\"/v1/models/\\'aaa"), HasSubstr("aaa...\" takes GET, HEAD, not")));
  client->Send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(Answered(*client).first, 415);
}

TEST_F(HttpServerTest, ABodyThatIsTooLongIsRefusedBeforeItComes) {
  const auto client = Connect();
  client->Send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Content-Length: 100001\r\n\r\n");
  const auto [head, body] = client->ReadAnswer();
  EXPECT_THAT(head, AllOf(HasSubstr("413"), HasSubstr("Connection: close")));
  EXPECT_EQ(json::parse(body)["error"]["code"], "MESSAGE_TOO_LARGE");
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(HttpServerTest, AClientThatAsksToContinueIsTold) {
  const auto client = Connect();
  client->BeginRequest();
  client->Send(R"({"prompt": "a"})");
  EXPECT_EQ(Answered(*client).first, 200);
}

TEST_F(HttpServerTest, RequestsThatFollowAtOnceAreAnsweredInOrder) {
  const auto client = Connect();
  client->Send(
      "GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n"
      "HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client->ReadAnswer().second, HasSubstr("ok"));
  EXPECT_THAT(client->ReadAnswer().second, HasSubstr("1.2"));
  EXPECT_THAT(client->ReadUntil("\r\n\r\n"), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, AnEmptyLineBeforeARequestIsIgnored) {
  const std::string request = "GET /live HTTP/1.1\r\nHost: a\r\n\r\n";
  const auto client = Connect();
  for (const bool at_once : {true, false}) {
    if (at_once) {
      client->Send("\r\n" + request);
    } else {
      for (const char c : "\r\n" + request) {
        client->Send(std::string(1, c));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    EXPECT_EQ(Answered(*client).first, 200);
  }
  // Also where it follows a body.
  client->Post("/tokenize", R"({"prompt": "a"})");
  client->Send("\r\n");
  EXPECT_EQ(Answered(*client).first, 200);
  client->Send(request);
  EXPECT_EQ(Answered(*client).first, 200);
  client->Send("\r\n\r\n" + request);
  EXPECT_EQ(Answered(*client).first, 400) << "one alone";
}

TEST_F(HttpServerTest, BeyondItsConnectionsTheLongestIdleGoesFirst) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(Connect());
    WaitUntil([&] { return core_->host.http_connections.now() == i + 1; });
  }
  EXPECT_EQ(Get("/health").first, 200);
  EXPECT_TRUE(clients[0]->IsClosed());
  // None of these is idle.
  WaitUntil([&] { return core_->host.http_connections.now() < 8; });
  for (size_t i = 1; i < clients.size(); ++i) clients[i]->BeginRequest();
  const auto last = Connect();
  last->BeginRequest();
  EXPECT_EQ(Get("/health").first, 503);
  EXPECT_GE(core_->host.closed.Get()["TOO_MANY_CONNECTIONS"], 2U);
}

TEST_F(HttpServerTest, ADrainingServerFinishesAndRefuses) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab"})");
  const Submitted submitted = engine_.Next();
  core_->state.SetDraining();
  const auto [status, answer] = Ask("/v1/completions", R"({"prompt": "ab"})");
  EXPECT_EQ(status, 503);
  EXPECT_EQ(answer["error"]["code"], "DRAINING");
  EXPECT_EQ(Get("/health").first, 503);
  EXPECT_EQ(Get("/live").first, 200);
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  const auto [head, body] = client->ReadAnswer();
  EXPECT_THAT(head, AllOf(HasSubstr("200 OK"), HasSubstr("Connection: close")));
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(HttpServerTest, UnderPressureBodiesAreRefusedTheLargestFirst) {
  HostQuotas quotas = Quotas();
  quotas.total_bytes = 1000;
  const auto resident = std::make_shared<std::atomic<int64_t>>(5000);
  Begin(quotas, NoChats("none"), [resident] { return resident->load(); });
  const auto small = Connect(), large = Connect();
  small->BeginRequest(50'000);
  small->Send(std::string(100, ' '));
  large->BeginRequest(50'000);
  large->Send(std::string(8000, ' '));
  EXPECT_EQ(Get("/live").first, 200);  // it has read them
  *resident = 5960;
  const auto expect_refused = [](HttpClient& client) {
    const auto [head, body] = client.ReadAnswer();
    EXPECT_THAT(head, AllOf(HasSubstr("503"), HasSubstr("Retry-After: 1\r\n")));
    EXPECT_THAT(body, HasSubstr("\"code\":\"HOST_MEMORY\""));
  };
  expect_refused(*small);
  EXPECT_TRUE(large->HasInput());
  expect_refused(*large);
}

constexpr char kChunked[] = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";

TEST_F(HttpServerTest, ABodyInChunksIsRefusedAsOneThatSaysItsLength) {
  for (const char* body : {"Content-Length: 5\r\n\r\nx", kChunked}) {
    const auto client = Connect();
    client->Send(absl::StrCat("GET /health HTTP/1.1\r\nHost: a\r\n", body, "0\r\n\r\n"));
    EXPECT_EQ(Answered(*client).first, 400) << body;
  }
  HostQuotas quotas = Quotas();
  quotas.total_bytes = 1000;
  const auto resident = std::make_shared<std::atomic<int64_t>>(5000);
  Begin(quotas, NoChats("none"), [resident] { return resident->load(); });
  *resident = 5880;
  WaitUntil([this] { return core_->pressure.refuses_calls(); });
  const auto client = Connect();
  client->Send(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: a\r\n", kChunked));
  EXPECT_EQ(Answered(*client).second["error"]["code"], "HOST_MEMORY");
}

TEST_F(HttpServerTest, ABodyThatNoRouteTakesIsAnsweredByItsHeadAlone) {
  api_key_ = std::string(32, 'k');
  Begin(Quotas());
  for (const char* path : {"/health", "/live", "/", "/page.js"}) {
    for (const char* body : {"Content-Length: 90000\r\n\r\n", "Content-Length: 90000\r\n\r\nx",
                             kChunked, "Content-Length: 90000\r\nExpect: 100-continue\r\n\r\n"}) {
      const auto client = Connect();
      client->Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: a\r\n", body));
      WaitUntil([&] { return client->HasInput() || core_->host.request_bytes.now() > 0; });
      if (!client->HasInput()) {
        ADD_FAILURE() << path << " takes " << body;
        continue;
      }
      const auto [head, answer] = client->ReadAnswer();
      EXPECT_THAT(head, AllOf(HasSubstr("405"), HasSubstr("Allow: GET, HEAD"),
                              HasSubstr("Connection: close")));
      EXPECT_TRUE(client->IsClosed());
    }
  }
  EXPECT_EQ(core_->host.request_bytes.peak(), 0);
}

class ScarceBytesTest : public HttpServerTest {
 protected:
  ScarceBytesTest() {
    HostQuotas quotas = Quotas();
    quotas.message_bytes = 1'000'000;
    quotas.request_bytes = 1'200'000;
    Begin(quotas);
  }
  std::unique_ptr<HttpClient> BeginBody(int64_t bytes, int64_t sent) {
    auto client = Connect();
    client->Send(
        absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                     "Content-Length: ", bytes, "\r\n\r\n", std::string(sent, ' ')));
    const int64_t before = claimed_;
    claimed_ += bytes;
    WaitUntil([&] { return core_->host.request_bytes.now() >= before + bytes; });
    return client;
  }
  int64_t claimed_ = 0;
};

TEST_F(ScarceBytesTest, WhileOthersWaitForRoomASlowBodyEndsAndTheyGoOn) {
  const auto fast = BeginBody(500'000, 400'000), slow = BeginBody(500'000, 1);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_FALSE(slow->HasInput()) << "no other body waits for room";
  const auto waiting = Connect();
  waiting->Post("/tokenize", R"({"prompt": "a"})" + std::string(200'000, ' '));
  const auto [status, answer] = Answered(*slow);
  EXPECT_EQ(status, 408);
  EXPECT_EQ(answer["error"]["code"], "SLOW_SENDER");
  EXPECT_EQ(Answered(*waiting).first, 200);
  EXPECT_FALSE(fast->HasInput());
}

TEST_F(ScarceBytesTest, ASlowBodyEndsForACallOfGrpcToo) {
  const auto slow = BeginBody(500'000, 1);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_FALSE(core_->host.TakeRequestBytes(900'000, 0, core_->quotas.request_bytes));
  const auto refused = std::chrono::steady_clock::now();
  EXPECT_EQ(Answered(*slow).first, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - refused, std::chrono::seconds(4));
}

TEST_F(ScarceBytesTest, ABodyThatFindsNoRoomIsRefusedInTheEnd) {
  const auto fast = BeginBody(900'000, 899'999);
  const auto waiting = Connect();
  waiting->Post("/tokenize", std::string(200'000, ' '));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_FALSE(waiting->HasInput());
  const auto [head, body] = waiting->ReadAnswer();
  EXPECT_THAT(head, AllOf(HasSubstr("503"), HasSubstr("Retry-After: 1\r\n")));
  EXPECT_THAT(body, HasSubstr("\"code\":\"REQUEST_BYTES\""));
  EXPECT_FALSE(fast->HasInput());
}

// As that of a single choice is.
TEST_F(HttpServerTest, ALongPromptOfSeveralChoicesIsTokenisedByTheTextWorker) {
  auto parsed = ChatTemplate::Parse("{% for i in range(20000) %}a{% endfor %}", "a test");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  auto parts = MakeChatParts(*std::move(parsed), "auto", "auto");
  ASSERT_TRUE(parts.ok()) << parts.status();
  HostQuotas quotas = Quotas();
  quotas.text_bytes = 0;
  Begin(quotas, std::make_shared<const ChatParts>(*std::move(parts)));
  const auto release = HoldTextWorker();
  const auto client = Connect();
  client->Post("/v1/chat/completions",
               R"({"messages": [{"role": "user", "content": "a"}], "n": 2})");
  WaitUntil([this] { return TextWorkerHasText(); });
  EXPECT_EQ(Get("/live").first, 200);
  release->Notify();
  const auto [status, answer] = Answered(*client);
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["code"], "context_length_exceeded");
}

TEST_F(HttpServerTest, BadWordsOfManyChoicesAreEncodedByTheTextWorker) {
  HostQuotas quotas = Quotas();
  quotas.text_bytes = 0;
  Begin(quotas);
  json body = {{"prompt", "a"}, {"n", 8}, {"max_tokens", 1}, {"bad_words", json::array()}};
  for (int i = 0; i < 60; ++i) body["bad_words"].push_back(std::string(30, 'a'));
  const auto release = HoldTextWorker();
  const auto client = Connect();
  client->Post("/v1/completions", body.dump());
  WaitUntil([this] { return TextWorkerHasText(); });
  EXPECT_EQ(Get("/live").first, 200);
  engine_.FillWith(WithReason(absl::ResourceExhaustedError("full"), reason::kQueueFull));
  EXPECT_EQ(Ask("/v1/completions", body.dump()).first, 429) << "before it waits";
  release->Notify();
  EXPECT_EQ(Answered(*client).first, 429);
}

TEST_F(HttpServerTest, AnAnswerHasRoomBehindATruncatedPromptOfAnyNumberOfChoices) {
  json body = {{"prompt", std::string(100, 'a')}, {"truncate_prompt_tokens", kTestModelLen}};
  for (const int n : {1, 2}) {
    body["n"] = n;
    const auto [status, answer] = Ask("/v1/completions", body.dump());
    EXPECT_EQ(status, 400);
    EXPECT_EQ(answer["error"]["code"], "INVALID_VALUE") << n << answer;
  }
}

TEST_F(HttpServerTest, ALossEndsAStreamWithItsRank) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "stream": true})");
  engine_.Next();
  client->ReadUntil("\r\n\r\n");
  core_->SetLost(absl::UnavailableError("rank 1 was lost"), {.rank = 1, .host = "b"});
  EXPECT_THAT(client->ReadUntil("0\r\n\r\n"),
              AllOf(HasSubstr("rank 1 was lost"), HasSubstr("RANK_LOST")));
  EXPECT_EQ(Get("/live").first, 503);
}

}  // namespace
}  // namespace bulkhead
