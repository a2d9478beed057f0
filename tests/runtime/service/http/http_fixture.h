// A client of the HTTP front end, and a server with an engine that the test controls.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "nlohmann/json.hpp"
#include "runtime/service/http/http_server.h"
#include "tests/runtime/service/fake_engine.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {

using nlohmann::json;

inline constexpr int kLimitMs = 20'000;

// A client that writes and reads bytes.
class HttpClient {
 public:
  explicit HttpClient(const std::string& target) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port));
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~HttpClient() { HangUp(); }

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
  // Sends the head of a request and waits until the server has read it.
  void BeginRequest(int body_bytes = 15) {
    Send(
        absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                     "Expect: 100-continue\r\nContent-Length: ",
                     body_bytes, "\r\n\r\n"));
    EXPECT_THAT(ReadUntil("\r\n\r\n"), testing::HasSubstr("100 Continue"));
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
  // Something has come already.
  bool HasInput() const {
    pollfd now = {fd_, POLLIN, 0};
    return poll(&now, 1, 0) > 0;
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
  HttpServerTest() { Begin(Quotas()); }
  ~HttpServerTest() override {
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::Seconds(1));
    EXPECT_EQ(core_->host.http_connections.now(), 0);
    EXPECT_EQ(core_->host.open_calls.now(), 0);
    EXPECT_EQ(core_->host.request_bytes.now(), 0);
    EXPECT_EQ(core_->host.answer_bytes.now(), 0);
  }

  static HostQuotas Quotas() {
    HostQuotas quotas;
    quotas.max_http_connections = 8;
    quotas.message_bytes = 100'000;
    return quotas;
  }
  void Begin(const HostQuotas& quotas, const ChatsOr& chats = NoChats("there is no template"),
             std::function<int64_t()> resident_bytes = ResidentBytes) {
    server_ = nullptr;  // before what it refers to
    auto access = AccessControl::Read({.environment_key = api_key_});
    ASSERT_TRUE(access.ok()) << access.status();
    core_ = std::make_unique<ServiceCore>(quotas, std::move(resident_bytes), *std::move(access));
    auto server = HttpServer::Start(
        {.host = "127.0.0.1", .allowed_origins = allowed_origins_, .port = 0, .chats = chats},
        core_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.rules.tokenizer = &tokenizer_;
    parts.rules.model = "folder/of-letters";
    parts.rules.served_model_names = {"letters"};
    parts.rules.adapters = {{"sql", "folder/of-sql"}};
    parts.rules.vocab_size = LetterTokenizer::kVocabSize;
    parts.rules.max_model_len = kTestModelLen;
    parts.server_info.set_version("1.2");
    core_->SetReady(std::move(parts));
  }
  std::unique_ptr<HttpClient> Connect() { return std::make_unique<HttpClient>(server_->target()); }
  // The body's JSON, and the status.
  std::pair<int, json> Ask(const std::string& path, const std::string& body) {
    const auto client = Connect();
    client->Post(path, body);
    return Answered(*client);
  }
  static std::pair<int, json> Answered(HttpClient& client) {
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
  // The text worker does nothing else until that.
  std::shared_ptr<absl::Notification> HoldTextWorker() {
    auto release = std::make_shared<absl::Notification>();
    EXPECT_TRUE(core_->text_worker.Post(0, [release] { release->WaitForNotification(); }).ok());
    return release;
  }
  // Of quotas without text_bytes, where one text is taken.
  bool TextWorkerHasText() {
    return !core_->text_worker.Post(0, [] {}).ok();
  }
  static void WaitUntil(const std::function<bool()>& done) {
    for (int i = 0; i < kLimitMs && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(done());
  }

  std::string api_key_;  // of the next Begin; empty: open to all
  std::vector<std::string> allowed_origins_;
  LetterTokenizer tokenizer_;
  FakeEngine engine_;
  std::unique_ptr<ServiceCore> core_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace bulkhead
