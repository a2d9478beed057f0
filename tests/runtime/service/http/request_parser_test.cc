#include "runtime/service/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

constexpr char kPost[] = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";

class RequestParserTest : public testing::Test {
 protected:
  static constexpr int64_t kMaxBody = 100;
  static constexpr int64_t kAllBodies = 120;

  std::unique_ptr<HttpRequestParser> New() {
    return std::make_unique<HttpRequestParser>(
        kMaxBody, BodyClaim(&counters_, kAllBodies),
        [this](const HttpRequest&, size_t) { return may_read_; });
  }
  // Byte by byte, as a connection gives them: what is left is given again.
  static void FeedSlowly(HttpRequestParser& parser, const std::string& text) {
    std::string pending;
    for (const char c : text) {
      pending += c;
      pending.erase(0, parser.Feed(pending));
    }
  }
  int RefusalOf(const std::string& text) {
    const auto at_once = New();
    at_once->Feed(text);
    const auto slowly = New();
    FeedSlowly(*slowly, text);
    EXPECT_EQ(slowly->refusal(), at_once->refusal()) << text;
    EXPECT_FALSE(at_once->is_done());
    return at_once->refusal();
  }

  HostCounters counters_;
  const PeakCounter& claimed_ = counters_.request_bytes;
  absl::Status may_read_;
};

TEST_F(RequestParserTest, ARequestIsReadWhateverThePieces) {
  const std::string text =
      absl::StrCat(kPost, "Content-Type: Application/JSON; charset=utf-8\r\nX-Request-Id: r1\r\n",
                   "Content-Length: 5\r\n\r\nhello");
  for (const bool slowly : {false, true}) {
    const auto parser = New();
    if (slowly) {
      FeedSlowly(*parser, text);
    } else {
      EXPECT_EQ(parser->Feed(absl::StrCat(text, "GET / HTTP/1.1\r\n")), text.size());
    }
    ASSERT_TRUE(parser->is_done());
    EXPECT_EQ(claimed_.now(), 5);
    HttpRequest request = parser->Take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/completions");
    EXPECT_EQ(request.content_type, "application/json");
    EXPECT_EQ(request.request_id, "r1");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keep_alive);
  }
  EXPECT_EQ(claimed_.now(), 0);
}

TEST_F(RequestParserTest, ChunksAreJoined) {
  const auto parser = New();
  FeedSlowly(*parser, absl::StrCat(kPost, "Transfer-Encoding: chunked\r\n\r\n",
                                   "3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"));
  ASSERT_TRUE(parser->is_done()) << parser->why();
  EXPECT_EQ(parser->Take().body, "hello");
}

TEST_F(RequestParserTest, TheQueryAndTheHostOfAProxyAreNoPartOfThePath) {
  for (const char* target : {"/health?a=b", "http://x:1/health", "https://x/health#f"}) {
    const auto parser = New();
    parser->Feed(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    ASSERT_TRUE(parser->is_done());
    EXPECT_EQ(parser->Take().path, "/health");
  }
}

TEST_F(RequestParserTest, HttpOneZeroClosesUnlessAsked) {
  auto parser = New();
  parser->Feed("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(parser->is_done());
  EXPECT_FALSE(parser->request().keep_alive);
  EXPECT_FALSE(parser->Take().takes_chunks);
  parser = New();
  parser->Feed("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(parser->is_done());
  EXPECT_FALSE(parser->Take().keep_alive);
}

TEST_F(RequestParserTest, AClientOfHttpOneZeroWaitsForNo100Continue) {
  for (const char* const version : {"1.0", "1.1"}) {
    const auto parser = New();
    parser->Feed(absl::StrCat("POST / HTTP/", version,
                              "\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    EXPECT_EQ(parser->expects_continue(), version == std::string("1.1"));
  }
}

TEST_F(RequestParserTest, AMessageWithTwoLengthsIsRefused) {
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                                   "\r\nhello")),
            400);
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                                   "\r\nhello")),
            400);
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello")),
            400);
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Content-Length: -5\r\n\r\n")), 400);
}

TEST_F(RequestParserTest, WhatIsNotHttpIsRefusedWithAStatusThatSaysWhy) {
  EXPECT_EQ(RefusalOf("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Transfer-Encoding: gzip, chunked\r\n\r\n")), 501);
  EXPECT_EQ(RefusalOf(absl::StrCat(kPost, "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n")),
            415);
}

TEST_F(RequestParserTest, AHeadHasALimit) {
  const std::string field = absl::StrCat("X: ", std::string(1000, 'a'), "\r\n");
  std::string head = kPost;
  while (head.size() <= kMaxHeadBytes) head += field;
  const auto parser = New();
  parser->Feed(head);
  EXPECT_EQ(parser->refusal(), 431);
  EXPECT_EQ(ReasonOf(parser->why()), reason::kMetadataTooLarge);
}

TEST_F(RequestParserTest, TheLimitOfAHeadIsTheSameWhateverThePieces) {
  for (const size_t bytes : {kMaxHeadBytes, kMaxHeadBytes + 1, 3 * kMaxHeadBytes}) {
    std::string head = kPost;
    while (head.size() < bytes - 100) head += "X: a\r\n";
    head += absl::StrCat("X: ", std::string(bytes - head.size() - 7, 'a'), "\r\n\r\n");
    ASSERT_EQ(head.size(), bytes);
    for (const size_t piece : {head.size() + 100, size_t{1000}, size_t{1}}) {
      const std::string text = head + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
      const auto parser = New();
      std::string pending;
      for (size_t i = 0; i < text.size() && !parser->is_done(); i += piece) {
        pending += text.substr(i, piece);
        pending.erase(0, parser->Feed(pending));
      }
      EXPECT_EQ(parser->refusal(), bytes > kMaxHeadBytes ? 431 : 0) << bytes << " by " << piece;
      EXPECT_EQ(parser->is_done(), bytes <= kMaxHeadBytes);
    }
  }
}

TEST_F(RequestParserTest, TheHeadOfAChunkHasALimit) {
  const auto parser = New();
  std::string text = absl::StrCat(kPost, "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(parser->Feed(text), text.size());
  parser->Feed(absl::StrCat("1;", std::string(kMaxHeadBytes + 10, 'x')));
  EXPECT_NE(parser->refusal(), 0);
}

TEST_F(RequestParserTest, ABodyHasALimitBeforeItComes) {
  auto parser = New();
  parser->Feed(absl::StrCat(kPost, "Content-Length: 101\r\n\r\n"));
  EXPECT_EQ(parser->refusal(), 413);
  EXPECT_THAT(std::string(parser->why().message()), HasSubstr("limit of 100"));
  EXPECT_EQ(claimed_.now(), 0);
  parser = New();
  parser->Feed(absl::StrCat(kPost, "Transfer-Encoding: chunked\r\n\r\n", "65\r\n",
                            std::string(101, 'a'), "\r\n"));
  EXPECT_EQ(parser->refusal(), 413);
}

TEST_F(RequestParserTest, BodiesOfOthersCanTakeAllOfTheirMemory) {
  const auto first = New();
  first->Feed(absl::StrCat(kPost, "Content-Length: 100\r\n\r\na"));
  EXPECT_EQ(claimed_.now(), 100);
  auto second = New();
  second->Feed(absl::StrCat(kPost, "Content-Length: 21\r\n\r\na"));
  EXPECT_TRUE(second->lacks_room());
  EXPECT_EQ(claimed_.now(), 100);
  EXPECT_GT(counters_.refused_claims, 0U);
  second = New();
  second->Feed(absl::StrCat(kPost, "Content-Length: 20\r\n\r\na"));
  EXPECT_FALSE(second->lacks_room());
}

TEST_F(RequestParserTest, ABodyThatLackedRoomGoesOnWhereItWas) {
  const std::string hello(50, 'a');
  for (const std::string& rest :
       {absl::StrCat("Content-Length: 50\r\n\r\n", hello),
        absl::StrCat("Transfer-Encoding: chunked\r\n\r\n32\r\n", hello, "\r\n0\r\n\r\n")}) {
    auto first = New();
    first->Feed(absl::StrCat(kPost, "Content-Length: 100\r\n\r\na"));
    const auto second = New();
    std::string pending = kPost + rest;
    for (int i = 0; i < 3; ++i) {
      pending.erase(0, second->Feed(pending));
      EXPECT_TRUE(second->has_head() && second->lacks_room());
    }
    first = nullptr;
    EXPECT_EQ(second->Feed(pending), pending.size());
    EXPECT_FALSE(second->lacks_room());
    ASSERT_TRUE(second->is_done());
    EXPECT_EQ(second->Take().body, hello);
  }
}

TEST_F(RequestParserTest, WhatTheServerRefusesIsNotRead) {
  may_read_ = HostIsShortOfMemory();
  const auto parser = New();
  parser->Feed(absl::StrCat(kPost, "Content-Length: 5\r\n\r\nhello"));
  EXPECT_EQ(parser->refusal(), 503);
  EXPECT_EQ(parser->body_bytes(), 0U);
}

}  // namespace
}  // namespace bulkhead
