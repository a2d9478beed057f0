// Calls that ConnectionRules holds back, and their streams on the server's side.
#include <gmock/gmock.h>

#include <string>

#include "tests/runtime/service/guard/rules_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class HeldCallTest : public ConnectionRulesTest {
 protected:
  std::string FromServer(ConnectionRules& rules, const std::string& bytes) {
    return rules.FromServer(bytes, now_);
  }
};

std::string Window(uint32_t stream) {
  return Frame(FrameType::kWindowUpdate, 0, stream, std::string("\0\0\1\0", 4));
}

TEST_F(HeldCallTest, ACallIsHeldUntilItsEnd) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  EXPECT_EQ(Sent(rules, ShortHeaders(3) + Window(3)), "");
  EXPECT_EQ(open_calls(), 1);
  EXPECT_LT(rules.unaccounted_bytes(), 100);
  EXPECT_EQ(Sent(rules, Message(3, 5, 3)), "");
  EXPECT_EQ(Sent(rules, Frame(FrameType::kData, frame_flag::kEndStream, 3)),
            ShortHeaders(3) + Window(3) + Message(3, 5, 3) +
                Frame(FrameType::kData, frame_flag::kEndStream, 3));
  Answer(rules, 3);
  EXPECT_EQ(open_calls(), 0);
  EXPECT_EQ(request_bytes(), 0);
}

// As reflection's clients do, which end a call after its answer.
TEST_F(HeldCallTest, ACallIsHeldUntilItsMessageIsWhole) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  const std::string begin = ShortHeaders(3) + Message(3, 5, 2);
  const std::string last = Frame(FrameType::kData, 0, 3, "xxx");
  EXPECT_EQ(Sent(rules, begin), "");
  EXPECT_EQ(Sent(rules, last), begin + last);
}

TEST_F(HeldCallTest, ACallIsHeldUntilItIsLarge) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string sent = ShortHeaders(3) + Message(3, 1 << 20, 5), out = Sent(rules, sent);
  EXPECT_EQ(out, "");
  for (; out.empty(); out = Sent(rules, Frame(FrameType::kData, 0, 3, "x"))) {
    ASSERT_LT(sent.size(), kMinForwardedBytes);
    sent += Frame(FrameType::kData, 0, 3, "x");
  }
  EXPECT_GE(sent.size(), kMinForwardedBytes);
  EXPECT_EQ(out, sent);
}

TEST_F(HeldCallTest, AHeaderBlockIsForwardedOnceItIsWhole) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  const std::string begin = Frame(FrameType::kHeaders, 0, 5, "hp");
  const auto more = [](uint32_t stream, size_t bytes, bool ends) {
    return Frame(FrameType::kContinuation, ends ? frame_flag::kEndHeaders : uint8_t{0}, stream,
                 std::string(bytes, 'a'));
  };
  Sent(rules, ShortHeaders(3));
  EXPECT_EQ(Sent(rules, begin + more(5, 3, false)), "");
  EXPECT_EQ(Sent(rules, more(5, kMinForwardedBytes, false)), "");
  EXPECT_EQ(Sent(rules, more(5, 7, true)),
            HeadersFrame(3, 0, "hp" + std::string(kMinForwardedBytes + 10, 'a')));
  EXPECT_EQ(Sent(rules, Frame(FrameType::kHeaders, 0, 7, "hp") + more(7, 3, true)), "");
  EXPECT_EQ(Sent(rules, Message(7, 5, 5, true)),
            HeadersFrame(5, 0, "hpaaa") + Message(5, 5, 5, true));
}

TEST_F(HeldCallTest, CallsThatEndOutOfOrderHaveStreamsOfTheServersOwn) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  EXPECT_EQ(Sent(rules, ShortHeaders(3) + ShortHeaders(5)), "");
  EXPECT_EQ(Sent(rules, Message(5, 5, 5, true)), ShortHeaders(3) + Message(3, 5, 5, true));
  EXPECT_EQ(Sent(rules, Message(3, 5, 5)), ShortHeaders(5) + Message(5, 5, 5));
  EXPECT_EQ(Sent(rules, Window(3) + Window(5) + Window(0)), Window(5) + Window(3) + Window(0));
  EXPECT_EQ(FromServer(rules, Window(5) + Window(3) + Window(0)),
            Window(3) + Window(5) + Window(0));
  EXPECT_EQ(Sent(rules, Headers(3, true)), Headers(5, true));  // trailers
  const std::string block = Frame(FrameType::kHeaders, 0, 5, "hp");
  const std::string rest = Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 5, "ack");
  EXPECT_EQ(FromServer(rules, block + rest + Message(5, 3, 3)),
            Frame(FrameType::kHeaders, 0, 3, "hp") +
                Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 3, "ack") +
                Message(3, 3, 3));
  EXPECT_EQ(FromServer(rules, RstStreamFrame(3, Http2Error::kCancel)),
            RstStreamFrame(5, Http2Error::kCancel));
  EXPECT_EQ(Sent(rules, RstStreamFrame(3, Http2Error::kCancel)),
            RstStreamFrame(5, Http2Error::kCancel));
  EXPECT_TRUE(rules.is_idle());
  // Of calls that are over.
  EXPECT_EQ(Sent(rules, Window(3) + RstStreamFrame(3, Http2Error::kCancel)), "");
  EXPECT_EQ(Sent(rules, Message(3, 3, 3)), Message(kNoCall, 3, 3));
  EXPECT_EQ(FromServer(rules, Window(5)), "");
}

TEST_F(HeldCallTest, AHeldCallThatIsResetLeavesItsDataAlone) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  // More than the resets that may come at once, and the slots that they may hold.
  for (uint32_t stream = 3; stream < 1203; stream += 2) {
    EXPECT_EQ(Sent(rules, ShortHeaders(stream) + Window(stream) +
                              RstStreamFrame(stream, Http2Error::kCancel)),
              "");
  }
  EXPECT_EQ(open_calls(), 0);
  EXPECT_EQ(Sent(rules, ShortHeaders(1203) + Message(1203, 100, 5)), "");
  EXPECT_EQ(request_bytes(), 105);
  EXPECT_EQ(Sent(rules, RstStreamFrame(1203, Http2Error::kCancel)), Message(kNoCall, 100, 5));
  EXPECT_EQ(request_bytes(), 0);
  EXPECT_EQ(ToClient(rules), "");
}

TEST_F(HeldCallTest, AHeldCallEndsAfterItsTimeAndTheServerNeverHearsOfIt) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, ShortHeaders(3) + Message(3, 100, 5));
  EXPECT_EQ(After(rules, kStalledBodyTime), "");
  EXPECT_EQ(After(rules, absl::Seconds(1)), Message(kNoCall, 100, 5));
  const std::string refusal = ToClient(rules);
  EXPECT_EQ(ResponseOf(refusal)["stream"], "3");
  EXPECT_EQ(ReasonIn(refusal), "SLOW_SENDER");
  EXPECT_EQ(open_calls(), 0);
}

TEST_F(HeldCallTest, HeldCallsCountAsOpenAndEndWithTheirConnection) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  uint32_t stream = 3;
  for (int i = 0; i < SmallQuotas().max_open_calls; ++i, stream += 2) {
    Sent(rules, ShortHeaders(stream));
  }
  EXPECT_EQ(Sent(rules, ShortHeaders(stream)), ShortHeaders(kNoCall));
  EXPECT_EQ(ReasonIn(ToClient(rules)), "TOO_MANY_CALLS");
  rules.End(now_);
  EXPECT_EQ(open_calls(), 0);
}

// What it says of its length may be less than 5 bytes.
TEST_F(HeldCallTest, AByteOfABodyTakesNoRoom) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, ShortHeaders(3) + Frame(FrameType::kData, 0, 3, std::string(1, '\0')));
  EXPECT_EQ(request_bytes(), 0);
  EXPECT_THAT(
      Sent(rules, Frame(FrameType::kData, frame_flag::kEndStream, 3, std::string("\0\0\0\1x", 5))),
      HasSubstr("hpack"));
  EXPECT_GT(request_bytes(), 1 << 20);  // what a message may have
  Answer(rules, 3);
  EXPECT_EQ(request_bytes(), 0);
}

// Its header blocks may build on one another.
TEST_F(HeldCallTest, UntilAClientAcknowledgesTheSettingsFewOfItsCallsAreNotHeld) {
  HostQuotas quotas;
  GuardTotals totals(quotas, &counters_, &errors_);
  ConnectionRules rules(&totals, now_);
  const std::string settings = Frame(FrameType::kSettings, 0, 0);
  Sent(rules, std::string(kHttp2Preface) + settings);
  FromServer(rules, settings);
  uint32_t stream = 1;
  for (; stream < 17; stream += 2) {
    EXPECT_EQ(Sent(rules, ShortHeaders(stream)), ShortHeaders(stream));
  }
  EXPECT_EQ(Sent(rules, ShortHeaders(17)), ShortHeaders(kNoCall));
  const std::string refusal = ToClient(rules);
  EXPECT_EQ(ReasonIn(refusal), "TOO_MANY_CALLS");
  EXPECT_THAT(ResponseOf(refusal)["grpc-message"], HasSubstr("not acknowledged"));
  // A whole call makes room. The first block behind the acknowledgement empties the decoder.
  EXPECT_EQ(Sent(rules, Message(1, 5, 5, true)), Message(1, 5, 5, true));
  EXPECT_EQ(Sent(rules, Frame(FrameType::kSettings, frame_flag::kAck, 0) + ShortHeaders(19)),
            Frame(FrameType::kSettings, frame_flag::kAck, 0) + ShortHeaders(17));
  EXPECT_EQ(Sent(rules, ShortHeaders(21)), "");
  EXPECT_EQ(ToClient(rules), "");
}

TEST_F(HeldCallTest, WhatTheServerDoesNotTakeOnceItGoesIsRefused) {
  const auto go_away = [](uint32_t last) { return GoAwayFrame(last, Http2Error::kNoError); };
  const auto refused = [](uint32_t stream) {
    return RstStreamFrame(stream, Http2Error::kRefusedStream);
  };
  for (size_t piece = 1; piece < 20; ++piece) {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    Sent(rules, ShortHeaders(3) + Headers(5, true) + Headers(7, true) + ShortHeaders(9));
    const std::string bytes = go_away(kHighestStream) + Window(0) + go_away(3) + Window(0);
    std::string out;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      out += FromServer(rules, bytes.substr(at, piece));
    }
    // 5, which is the server's 3, is taken; 7 is not, and 3 and 9 are held.
    EXPECT_EQ(out, go_away(kHighestStream) + Window(0) + go_away(7) + Window(0));
    EXPECT_EQ(After(rules, absl::ZeroDuration()), RstStreamFrame(5, Http2Error::kCancel));
    EXPECT_THAT(ToClient(rules),
                testing::AllOf(HasSubstr(refused(3)), HasSubstr(refused(7)), HasSubstr(refused(9)),
                               testing::Not(HasSubstr(refused(5)))));
    EXPECT_EQ(FromServer(rules, Message(3, 3, 3)), Message(5, 3, 3));
    rules.End(now_);
    now_ += kResetCallTime;
    totals_.ReturnSlots(now_);
  }
}

TEST_F(HeldCallTest, AServerThatStopsGetsNoMoreCalls) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, ShortHeaders(3) + Headers(5, true));
  totals_.is_stopping = true;
  totals_.ends_left = 0;  // what is held is no work for the server
  EXPECT_EQ(After(rules, absl::ZeroDuration()), "");
  EXPECT_EQ(ToClient(rules), RstStreamFrame(3, Http2Error::kRefusedStream));
  EXPECT_FALSE(rules.is_idle());
  Sent(rules, Headers(7, true));
  const std::string refusal = ToClient(rules);
  EXPECT_EQ(ReasonIn(refusal), "STOPPING");
  EXPECT_EQ(ResponseOf(refusal)["grpc-status"], "14");
  Answer(rules, 3);  // what is 5 to the client
  EXPECT_TRUE(rules.is_idle());
}

TEST_F(HeldCallTest, TheServersWindowComesBackForWhatTheClientDoesNotGet) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3, true) + RstStreamFrame(3, Http2Error::kCancel));
  EXPECT_EQ(FromServer(rules, Message(3, 100, 100) + Message(3, 200, 100)), "");
  EXPECT_EQ(After(rules, absl::ZeroDuration()), WindowUpdateFrame(210));
  EXPECT_EQ(After(rules, absl::ZeroDuration()), "");
}

}  // namespace
}  // namespace bulkhead
