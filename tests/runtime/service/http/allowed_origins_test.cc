// Pages of other origins: what browsers are told.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kPage[] = "Origin: https://a.example\r\n";
constexpr char kOther[] = "Origin: https://b.example\r\n";
constexpr char kAsks[] = "Access-Control-Request-Method: POST\r\n";
constexpr char kAllowed[] = "\r\nAccess-Control-Allow-Origin: https://a.example\r\n";
constexpr char kAnyCorsField[] = "Access-Control";

class AllowedOriginsTest : public HttpServerTest {
 protected:
  AllowedOriginsTest() { BeginWith({"https://a.example", "http://localhost:3000"}); }

  void BeginWith(std::vector<std::string> origins, const std::string& key = "") {
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::Seconds(1));
    server_ = nullptr;
    allowed_origins_ = std::move(origins);
    api_key_ = key;
    Begin(Quotas());
  }

  // The head of an answer without a body, or with one that is not read.
  std::string HeadOf(const std::string& request_line, const std::string& fields) {
    const auto client = Connect();
    client->Send(absl::StrCat(request_line, " HTTP/1.1\r\nHost: a\r\n", fields, "\r\n"));
    return client->ReadUntil("\r\n\r\n");
  }
};

TEST_F(AllowedOriginsTest, APageOfAnAllowedOriginMayReadEveryAnswer) {
  for (const char* request : {"GET /v1/models", "GET /health", "GET /status", "HEAD /live",
                              "GET /nothing", "DELETE /v1/models", "OPTIONS /v1/completions"}) {
    EXPECT_THAT(HeadOf(request, kPage), AllOf(HasSubstr(kAllowed), HasSubstr("Vary: Origin\r\n")))
        << request;
  }
  // Refused before all of it is there.
  EXPECT_THAT(HeadOf("POST /tokenize", absl::StrCat(kPage, "Content-Length: 999999999\r\n")),
              AllOf(StartsWith("HTTP/1.1 413"), HasSubstr(kAllowed)));
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "stream": true})", kPage);
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  EXPECT_THAT(client->ReadUntil("\r\n\r\n"), AllOf(HasSubstr("event-stream"), HasSubstr(kAllowed)));
  client->ReadUntil("0\r\n\r\n");
  // Of each request by itself.
  client->Post("/tokenize", R"({"prompt": "a"})", kOther);
  EXPECT_THAT(client->ReadAnswer().first,
              AllOf(HasSubstr("Vary: Origin\r\n"), Not(HasSubstr(kAnyCorsField))));
}

TEST_F(AllowedOriginsTest, OtherOriginsAreToldNothing) {
  for (const std::string& fields :
       {std::string(kOther), std::string(), std::string("Origin: null\r\n"),
        std::string("Origin: https://a.example.evil\r\n"),
        std::string("Origin: http://a.example\r\n"), absl::StrCat(kPage, kOther),
        absl::StrCat("Origin: ", std::string(300, 'a'), "\r\n")}) {
    EXPECT_THAT(HeadOf("GET /v1/models", fields),
                AllOf(HasSubstr("Vary: Origin\r\n"), Not(HasSubstr(kAnyCorsField))))
        << fields;
    EXPECT_THAT(HeadOf("OPTIONS /v1/completions", absl::StrCat(fields, kAsks)),
                AllOf(StartsWith("HTTP/1.1 405"), Not(HasSubstr(kAnyCorsField))))
        << fields;
  }
}

TEST_F(AllowedOriginsTest, ABrowserThatAsksFirstIsAnsweredWithoutAKey) {
  BeginWith({"https://a.example"}, "a-key-of-this-server");
  EXPECT_THAT(HeadOf("OPTIONS /v1/chat/completions", absl::StrCat(kPage, kAsks)),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(kAllowed),
                    HasSubstr("\r\nAccess-Control-Allow-Headers: *, Authorization\r\n"),
                    HasSubstr("\r\nAccess-Control-Allow-Methods: GET, HEAD, POST\r\n"),
                    HasSubstr("\r\nContent-Length: 0\r\n")));
  EXPECT_THAT(HeadOf("GET /v1/models", kPage),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr(kAllowed)));
  // Nothing else is open.
  EXPECT_THAT(HeadOf("OPTIONS /v1/models", kPage), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(HeadOf("GET /v1/models", absl::StrCat(kPage, kAsks)), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(HeadOf("OPTIONS /v1/models", absl::StrCat(kOther, kAsks)),
              StartsWith("HTTP/1.1 401"));
}

TEST_F(AllowedOriginsTest, AnyOriginIsEchoed) {
  BeginWith({"*"});
  EXPECT_THAT(HeadOf("GET /health", kOther),
              HasSubstr("\r\nAccess-Control-Allow-Origin: https://b.example\r\n"));
  EXPECT_THAT(HeadOf("GET /health", ""), Not(HasSubstr(kAnyCorsField)));
}

TEST_F(AllowedOriginsTest, WithoutTheFlagNothingIsAdded) {
  BeginWith({});
  EXPECT_THAT(HeadOf("GET /health", kPage),
              AllOf(Not(HasSubstr(kAnyCorsField)), Not(HasSubstr("Vary"))));
  EXPECT_THAT(HeadOf("OPTIONS /health", absl::StrCat(kPage, kAsks)), StartsWith("HTTP/1.1 405"));
}

}  // namespace
}  // namespace bulkhead
