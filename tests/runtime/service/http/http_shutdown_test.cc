// The end of the front end, with requests under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class HttpShutdownTest : public HttpServerTest {
 protected:
  HttpShutdownTest() {
    HostQuotas quotas = Quotas();
    quotas.text_bytes = 0;
    Begin(quotas);
  }
  // While the test goes on; ends once its clients have gone.
  std::future<void> Shutdown() {
    return std::async(std::launch::async, [this] { server_->Shutdown(absl::Seconds(60)); });
  }
};

TEST_F(HttpShutdownTest, RequestsThatAreNotWholeAreRefused) {
  const auto head = Connect(), body = Connect(), idle = Connect();
  head->Send("GET /live HTTP/1.1\r\nHost: a\r\n\r\nPOST /tokenize HT");
  EXPECT_EQ(Answered(*head).first, 200);
  body->BeginRequest();
  EXPECT_EQ(Get("/live").first, 200);  // it waits for the rest of both
  const std::future<void> shutdown = Shutdown();
  for (HttpClient* client : {head.get(), body.get()}) {
    const auto [fields, text] = client->ReadAnswer();
    EXPECT_THAT(fields, AllOf(HasSubstr("503"), HasSubstr("Connection: close")));
    EXPECT_THAT(text, HasSubstr("\"code\":\"DRAINING\""));
    EXPECT_TRUE(client->IsClosed());
    client->HangUp();
  }
  EXPECT_TRUE(idle->IsClosed());
}

TEST_F(HttpShutdownTest, AnAnswerThatIsBeingMadeIsSent) {
  const auto release = HoldTextWorker();
  const auto client = Connect(), idle = Connect();
  client->Post("/tokenize", absl::StrCat(R"({"prompt": ")", std::string(20'000, 'a'), "\"}"));
  WaitUntil([this] { return TextWorkerHasText(); });
  const std::future<void> shutdown = Shutdown();
  EXPECT_TRUE(idle->IsClosed());
  release->Notify();
  EXPECT_THAT(client->ReadUntil("]}"), AllOf(HasSubstr("200 OK"), HasSubstr("Connection: close"),
                                             HasSubstr("\"count\":20001")));
  client->HangUp();
}

}  // namespace
}  // namespace bulkhead
