// The front end over sockets, with an engine that the test controls.
#include "runtime/service/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/fake_engine.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int kLimitMs = 20'000;

// A client that writes and reads bytes.
class Client {
 public:
  explicit Client(const std::string& target) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port));
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { HangUp(); }

  void HangUp() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Post(const std::string& path, const std::string& body, const std::string& fields = "") {
    Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                      fields, "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  // Up to what ends with `end`; all there is where the connection ends before.
  std::string ReadUntil(const std::string& end) {
    while (!absl::StrContains(received_, end) && ReadSome()) {
    }
    const size_t at = received_.find(end);
    const size_t bytes = at == std::string::npos ? received_.size() : at + end.size();
    std::string text = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return text;
  }
  // An answer with a length: head and body.
  std::pair<std::string, std::string> ReadAnswer() {
    std::string head = ReadUntil("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    int bytes = 0;
    if (at != std::string::npos) {
      EXPECT_TRUE(absl::SimpleAtoi(head.substr(at + 16, head.find("\r\n", at) - at - 16), &bytes));
    }
    while (static_cast<int>(received_.size()) < bytes && ReadSome()) {
    }
    std::string body = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return {std::move(head), std::move(body)};
  }
  // Waits for the end of the connection.
  bool IsClosed() {
    while (ReadSome()) {
    }
    return is_closed_;
  }

 private:
  bool ReadSome() {
    pollfd wait = {fd_, POLLIN, 0};
    if (poll(&wait, 1, kLimitMs) <= 0) {
      ADD_FAILURE() << "nothing came; so far: " << received_;
      return false;
    }
    char bytes[65536];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
    is_closed_ = got <= 0;
    if (got > 0) received_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  int fd_ = -1;
  bool is_closed_ = false;
  std::string received_;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    HostQuotas quotas;
    quotas.max_http_connections = 8;
    quotas.message_bytes = 100'000;
    Begin(quotas);
  }
  ~HttpServerTest() override {
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::Seconds(1));
    EXPECT_EQ(core_->host.http_connections.now(), 0);
    EXPECT_EQ(core_->host.open_calls.now(), 0);
    EXPECT_EQ(core_->host.request_bytes.now(), 0);
    EXPECT_EQ(core_->host.answer_bytes.now(), 0);
  }

  void Begin(const HostQuotas& quotas) {
    core_ = std::make_unique<ServiceCore>(quotas);
    auto server = HttpServer::Start({.host = "127.0.0.1", .port = 0}, core_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.rules.tokenizer = &tokenizer_;
    parts.rules.served_model_names = {"letters"};
    parts.rules.vocab_size = LetterTokenizer::kVocabSize;
    parts.rules.max_model_len = kTestModelLen;
    parts.server_info.set_version("1.2");
    core_->SetReady(std::move(parts));
  }
  std::unique_ptr<Client> Connect() { return std::make_unique<Client>(server_->target()); }
  // The body's JSON, and the status.
  std::pair<int, json> Ask(const std::string& path, const std::string& body) {
    const auto client = Connect();
    client->Post(path, body);
    return Answered(*client);
  }
  static std::pair<int, json> Answered(Client& client) {
    const auto [head, body] = client.ReadAnswer();
    int status = 0;
    EXPECT_TRUE(absl::SimpleAtoi(head.substr(9, 3), &status)) << head;
    return {status, json::parse(body, nullptr, false)};
  }
  std::pair<int, json> Get(const std::string& path) {
    const auto client = Connect();
    client->Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    return Answered(*client);
  }
  static void WaitUntil(const std::function<bool()>& done) {
    for (int i = 0; i < kLimitMs && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(done());
  }

  LetterTokenizer tokenizer_;
  FakeEngine engine_;
  std::unique_ptr<ServiceCore> core_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, SaysWhatItServes) {
  EXPECT_EQ(Get("/health").first, 200);
  EXPECT_EQ(Get("/live").first, 200);
  EXPECT_EQ(Get("/version").second["version"], "1.2");
  const json models = Get("/v1/models").second;
  EXPECT_EQ(models["data"][0]["id"], "letters");
  EXPECT_EQ(models["data"][0]["root"], "letters");
  EXPECT_EQ(models["data"][0]["max_model_len"], kTestModelLen);
}

TEST_F(HttpServerTest, AWholeAnswerHasTextUsageAndReason) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"model": "letters", "prompt": "ab", "max_tokens": 3})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.prompt, (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(submitted.request.stopping.max_tokens, 3);
  submitted.Send(0, {'c', '"'}, "c\"");
  submitted.Finish(FinishReason::kMaxTokens, 2);
  const auto [status, answer] = Answered(*client);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "c\"");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
  EXPECT_TRUE(absl::StartsWith(submitted.request.request_id, "cmpl-"));
  EXPECT_EQ(answer["id"], submitted.request.request_id);
}

TEST_F(HttpServerTest, AStreamIsEventsOnAConnectionThatStays) {
  const auto client = Connect();
  for (int i = 0; i < 2; ++i) {
    client->Post("/v1/completions",
                 R"({"prompt": "ab", "stream": true, "stream_options": {"include_usage": true}})");
    const Submitted submitted = engine_.Next();
    EXPECT_THAT(client->ReadUntil("\r\n\r\n"),
                AllOf(HasSubstr("200 OK"), HasSubstr("text/event-stream"), HasSubstr("chunked")));
    submitted.Send(0, {'c'}, "c");
    const std::string first = client->ReadUntil("\n\n");
    EXPECT_THAT(first, HasSubstr("data: {\"id\":"));
    EXPECT_THAT(first, HasSubstr("\"text\":\"c\""));
    EXPECT_THAT(first, HasSubstr("\"usage\":null"));
    submitted.Finish(FinishReason::kEos, 1);
    const std::string rest = client->ReadUntil("data: [DONE]\n\n\r\n0\r\n\r\n");
    EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"stop\""));
    EXPECT_THAT(rest, HasSubstr("\"choices\":[],\"usage\":{\"prompt_tokens\":3"));
  }
}

TEST_F(HttpServerTest, ChoicesAreCallsWithSeedsOfTheirOwn) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": ["a", "b"], "n": 2, "seed": 5, "max_tokens": 2})");
  for (int i = 0; i < 4; ++i) {
    const Submitted submitted = engine_.Next();
    EXPECT_EQ(submitted.request.sampling.seed, static_cast<uint64_t>(5 + i % 2));
    EXPECT_EQ(submitted.request.prompt.back(), i < 2 ? 'a' : 'b');
    submitted.Send(0, {'0' + i}, std::string(1, static_cast<char>('0' + i)));
    submitted.Finish(FinishReason::kMaxTokens, 1);
  }
  const json answer = Answered(*client).second;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], std::to_string(i));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4) << "each prompt once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(HttpServerTest, AChoiceThatIsRefusedEndsTheOthers) {
  const auto client = Connect();
  engine_.RefuseWith(WithRetryAfter(
      WithReason(absl::ResourceExhaustedError("full"), reason::kQueueFull), absl::Seconds(2)));
  client->Post("/v1/completions", R"({"prompt": "a", "n": 2})");
  const Submitted second = engine_.Next();
  engine_.WaitForCancel(second.request.request_id);
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

TEST_F(HttpServerTest, LogprobsAreOfEachToken) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "logprobs": 2})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.num_logprobs, 2);
  OutputDelta delta;
  for (const char c : {'c', 'd'}) {
    delta.tokens.push_back({c, -0.5F, {{c, -0.5F}, {'e', -1.25F}}});
  }
  delta.text = "cd";
  submitted.sink->OnDelta(delta);
  submitted.Finish(FinishReason::kMaxTokens, 2);
  const json logprobs = Answered(*client).second["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"c", "d"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"][1], json({{"d", -0.5}, {"e", -1.25}}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1}));
}

TEST_F(HttpServerTest, EchoBeginsWithThePrompt) {
  for (const bool stream : {false, true}) {
    const auto client = Connect();
    client->Post("/v1/completions", absl::StrCat(R"({"prompt": "ab", "echo": true, "stream": )",
                                                 stream ? "true" : "false", "}"));
    const Submitted submitted = engine_.Next();
    submitted.Send(0, {'c'}, "c");
    submitted.Finish(FinishReason::kMaxTokens, 1);
    if (stream) {
      const std::string events = client->ReadUntil("[DONE]");
      EXPECT_LT(events.find("\"text\":\"ab\""), events.find("\"text\":\"c\""));
    } else {
      EXPECT_EQ(Answered(*client).second["choices"][0]["text"], "abc");
    }
  }
}

TEST_F(HttpServerTest, ALongAnswerIsSentInChunks) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab"})");
  const Submitted submitted = engine_.Next();
  std::string text(100'000, 'x');
  text += "\xc3\xa9";
  submitted.Send(0, {'c'}, text);
  submitted.Finish(FinishReason::kMaxTokens, 1);
  EXPECT_THAT(client->ReadUntil("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  std::string body;
  while (true) {
    const std::string size = client->ReadUntil("\r\n");
    const auto bytes = std::stoul(size, nullptr, 16);
    if (bytes == 0) break;
    EXPECT_LE(bytes, 4 * BodyParts::kSliceBytes);
    std::string chunk = client->ReadUntil("\r\n");
    body += chunk.substr(0, chunk.size() - 2);
  }
  EXPECT_EQ(json::parse(body)["choices"][0]["text"], text);
}

TEST_F(HttpServerTest, TextsAndIdsAreConvertedBothWays) {
  EXPECT_EQ(Ask("/tokenize", R"({"prompt": "ab"})").second["tokens"], json({256, 97, 98}));
  const json plain = Ask("/tokenize", R"({"prompt": "ab", "add_special_tokens": false})").second;
  EXPECT_EQ(plain["count"], 2);
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": [97, 98]})").second["prompt"], "ab");
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": [97, 999]})").first, 400);
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": 5})").first, 400);
  // On the text worker:
  const json many =
      Ask("/tokenize", absl::StrCat(R"({"prompt": ")", std::string(50'000, 'a'), R"("})")).second;
  EXPECT_EQ(many["count"], 50'001);
}

TEST_F(HttpServerTest, LongPromptsAreRefusedOrServedOnTheTextWorker) {
  const auto [status, answer] =
      Ask("/v1/completions", absl::StrCat(R"({"prompt": ")", std::string(50'000, 'a'), R"("})"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["code"], "PROMPT_TOO_LONG");
  EXPECT_EQ(answer["error"]["param"], "prompt");
  const auto client = Connect();
  client->Post("/v1/completions",
               absl::StrCat(R"({"prompt": "a", "user": ")", std::string(50'000, 'a'), R"("})"));
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  EXPECT_EQ(Answered(*client).first, 200);
}

TEST_F(HttpServerTest, RefusalsHaveTheirStatus) {
  EXPECT_EQ(Ask("/v1/completions", R"({"model": "other", "prompt": "a"})").first, 404);
  EXPECT_EQ(Ask("/v1/completions", "{").first, 400);
  EXPECT_EQ(Ask("/v1/completions", R"({"prompt": "a", "best_of": 4})").first, 400);
  EXPECT_EQ(Ask("/v1/nothing", "{}").first, 404);
  EXPECT_EQ(Ask("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})")
                .second["error"]["code"],
            "TEXT_NOT_SUPPORTED")
      << "there is no template";
  const auto client = Connect();
  client->Send("DELETE /v1/models HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto [head, body] = client->ReadAnswer();
  EXPECT_THAT(head, AllOf(HasSubstr("405"), HasSubstr("Allow: GET, HEAD")));
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
  client->Send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 15\r\n\r\n");
  EXPECT_THAT(client->ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
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

TEST_F(HttpServerTest, BeyondItsConnectionsTheLongestIdleGoesFirst) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(Connect());
    WaitUntil([&] { return core_->host.http_connections.now() == i + 1; });
  }
  EXPECT_EQ(Get("/health").first, 200);
  EXPECT_TRUE(clients[0]->IsClosed());
  // None of these is idle.
  WaitUntil([&] { return core_->host.http_connections.now() < 8; });
  for (size_t i = 1; i < clients.size(); ++i) clients[i]->Send("GET /");
  const auto last = Connect();
  last->Send("GET /");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
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
  EXPECT_EQ(Answered(*client).first, 200);
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

TEST_F(HttpServerTest, ScoresATextsTokens) {
  engine_.AnswerWith([](const Submitted& submitted) {
    EXPECT_NE(submitted.request.prompt_logits, nullptr);
    submitted.Fail(absl::InternalError("no model here"));
  });
  const auto [status, answer] = Ask("/v1/score", R"({"prompt": "ab"})");
  EXPECT_EQ(status, 500);
  EXPECT_EQ(answer["error"]["code"], "INTERNAL");
}

}  // namespace
}  // namespace bulkhead
