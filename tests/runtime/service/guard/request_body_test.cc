// What ConnectionRules does about bodies that come slowly, are too large, or find no room.
#include <gmock/gmock.h>

#include <string>

#include "tests/runtime/service/guard/rules_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class RequestBodyTest : public ConnectionRulesTest {};

TEST_F(RequestBodyTest, ACallWithoutABodyEndsOnBothSidesAfterItsTime) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3));
  EXPECT_EQ(After(rules, kStalledBodyTime), "");
  EXPECT_EQ(After(rules, absl::Seconds(1)), RstStreamFrame(3, Http2Error::kCancel));
  EXPECT_EQ(ReasonIn(ToClient(rules)), "SLOW_SENDER");
  EXPECT_EQ(errors_.Get().at("SLOW_SENDER"), 1U);
  // What the client still sends of it goes on to the server, which passes over it.
  EXPECT_EQ(Sent(rules, Message(3, 5, 5)), Message(kNoCall, 5, 5));
  EXPECT_EQ(request_bytes(), 0);
}

TEST_F(RequestBodyTest, AHeaderBlockThatIsNotWholeKeepsNoSlowBodyAlive) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 1000, 1));
  std::string ended;
  for (uint32_t stream = 5; stream < 35 && ended.empty(); stream += 2) {
    Sent(rules, Frame(FrameType::kHeaders, 0, stream, "x"));
    ended = After(rules, absl::Seconds(1));
    Sent(rules, Frame(FrameType::kContinuation, frame_flag::kEndHeaders, stream));
  }
  EXPECT_EQ(ended, RstStreamFrame(3, Http2Error::kCancel));
  EXPECT_EQ(request_bytes(), 0);
}

TEST_F(RequestBodyTest, ABodyThatDripsEndsByItsSizeAtTheLeastRate) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 640 << 10, 1));  // may take 60 s and 10 s
  std::string ended;
  int seconds = 0;
  while (ended.empty() && seconds < 100) {
    Sent(rules, Frame(FrameType::kData, 0, 3, "x"));
    ended = After(rules, absl::Seconds(1));
    ++seconds;
  }
  EXPECT_EQ(ended, RstStreamFrame(3, Http2Error::kCancel));
  EXPECT_NEAR(seconds, 70, 1);
}

TEST_F(RequestBodyTest, ACallThatWasTakenOverHasAllTheTimeThereIs) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 5, 5, true) + Headers(5));
  rules.FromServer(Headers(5), now_);  // answered before its end, as reflection is
  EXPECT_EQ(After(rules, absl::Hours(1)), "");
  EXPECT_EQ(open_calls(), 2);
}

TEST_F(RequestBodyTest, ABodyWaitsForRoomAndGoesOnWhenAnotherWasTakenOver) {
  ConnectionRules rules(&totals_, now_), other(&totals_, now_);
  Begin(rules);
  Begin(other);
  for (uint32_t stream = 3; stream < 9; stream += 2) {
    Sent(other, Headers(stream) + Message(stream, 1 << 20, 5));
  }
  EXPECT_GT(request_bytes(), 3 << 20);
  Sent(rules, Headers(3));
  std::string out;
  const std::string body = Message(3, 1 << 20, 5);
  EXPECT_EQ(rules.FromClient(body, now_, &out), 0U);
  EXPECT_TRUE(rules.is_waiting());
  EXPECT_TRUE(totals_.bytes_are_wanted());
  // A small one still finds room.
  EXPECT_EQ(Sent(other, Headers(9) + Message(9, 1000, 5)), Headers(9) + Message(9, 1000, 5));
  other.FromServer(Headers(3), now_);
  EXPECT_EQ(Sent(rules, body), body);
  EXPECT_FALSE(rules.is_waiting());
}

TEST_F(RequestBodyTest, WhoWaitsTooLongIsRefusedAndItsConnectionGoesOn) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  for (uint32_t stream = 3; stream < 9; stream += 2) {
    Sent(rules, Headers(stream) + Message(stream, 1 << 20, 5));
  }
  const std::string body = Message(9, 1 << 20, 5), ping = Frame(FrameType::kPing, 0, 0, "12345678");
  Sent(rules, Headers(9));
  std::string out;
  EXPECT_EQ(rules.FromClient(body + ping, now_, &out), 0U);
  now_ += kMaxWaitTime + absl::Seconds(1);
  EXPECT_EQ(Sent(rules, body + ping),
            RstStreamFrame(9, Http2Error::kCancel) + Message(kNoCall, 1 << 20, 5) + ping);
  EXPECT_EQ(ReasonIn(ToClient(rules)), "REQUEST_BYTES");
}

TEST_F(RequestBodyTest, WhileOthersWaitASlowBodyEndsEarly) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 1 << 20, 5) + Headers(5) + Message(5, 1 << 20, 16000));
  for (int i = 0; i < 16; ++i) Sent(rules, Frame(FrameType::kData, 0, 5, std::string(16000, 'x')));
  EXPECT_EQ(After(rules, absl::Seconds(3)), "");
  ++counters_.refused_claims;  // as a body of HTTP does
  EXPECT_EQ(After(rules, absl::Seconds(0.1)), RstStreamFrame(3, Http2Error::kCancel));
}

TEST_F(RequestBodyTest, ABodyThatWaitedForRoomHasItsTimeFromThenOn) {
  ConnectionRules rules(&totals_, now_), other(&totals_, now_);
  Begin(rules);
  Begin(other);
  for (uint32_t stream = 3; stream < 9; stream += 2) {
    Sent(other, Headers(stream) + Message(stream, 1 << 20, 5));
  }
  Sent(rules, Headers(3));
  const std::string body = Message(3, 1 << 20, 5);
  std::string out;
  EXPECT_EQ(rules.FromClient(body, now_, &out), 0U);
  EXPECT_EQ(After(rules, absl::Seconds(3), /*reading=*/false), "");
  other.FromServer(Headers(3), now_);
  EXPECT_EQ(Sent(rules, body), body);
  EXPECT_TRUE(totals_.bytes_are_wanted());
  EXPECT_EQ(After(rules, absl::Seconds(1)), "");
  EXPECT_EQ(After(rules, absl::Seconds(2)), RstStreamFrame(3, Http2Error::kCancel));
}

TEST_F(RequestBodyTest, AMessageBeyondTheLimitIsRefusedByItsLength) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  const std::string body = Message(3, (1 << 20) + SmallQuotas().refused_message_bytes + 1, 5);
  EXPECT_EQ(Sent(rules, Headers(3) + body),
            Headers(3) + RstStreamFrame(3, Http2Error::kCancel) +
                Message(kNoCall, (1 << 20) + SmallQuotas().refused_message_bytes + 1, 5));
  auto response = ResponseOf(ToClient(rules));
  EXPECT_EQ(response["stream"], "3");
  EXPECT_EQ(response["grpc-status"], "8");
  EXPECT_THAT(response["grpc-message"], HasSubstr("2097153 bytes, more than the limit of 1048576"));
  EXPECT_EQ(response["rest"], RstStreamFrame(3, Http2Error::kNoError));
  EXPECT_EQ(request_bytes(), 0);
}

TEST_F(RequestBodyTest, WhatTheServerSaysOfACallThatEndedHereIsKept) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules,
       Headers(3) + Message(3, (1 << 20) + SmallQuotas().refused_message_bytes + 1, 5, true));
  EXPECT_EQ(ResponseOf(ToClient(rules))["rest"], "");  // the client has ended it
  const std::string block = Frame(FrameType::kHeaders, frame_flag::kEndStream, 3, "hp") +
                            Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 3, "ack");
  const std::string ping = Frame(FrameType::kPing, 0, 0, "12345678");
  const std::string reset = RstStreamFrame(3, Http2Error::kNoError);
  for (size_t piece = 1; piece < 30; ++piece) {
    const std::string bytes = ping + block + ping + reset + ping;
    std::string out;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      out += rules.FromServer(absl::string_view(bytes).substr(at, piece), now_);
    }
    EXPECT_EQ(out, ping + ping + ping);
  }
}

TEST_F(RequestBodyTest, ABodyThatIsLongerThanItSaidIsCut) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 5, 5));
  const std::string more = Frame(FrameType::kData, 0, 3, std::string(8192, 'x'));
  EXPECT_EQ(Sent(rules, more), RstStreamFrame(3, Http2Error::kCancel) +
                                   Frame(FrameType::kData, 0, kNoCall, std::string(8192, 'x')));
}

TEST_F(RequestBodyTest, TheEndGivesEverythingBackButTheSlotsOfOpenCalls) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3) + Message(3, 1000, 5) + Headers(5));
  EXPECT_EQ(rules.unaccounted_bytes(), 1005 + 2 * kOpenCallBytes);
  rules.End(now_);
  EXPECT_EQ(request_bytes(), 0);
  EXPECT_EQ(open_calls(), 2);
  now_ += kResetCallTime;
  totals_.ReturnSlots(now_);
  EXPECT_EQ(open_calls(), 0);
}

}  // namespace
}  // namespace bulkhead
