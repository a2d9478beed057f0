#include "runtime/service/guard/connection_rules.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/runtime/service/guard/rules_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

TEST_F(ConnectionRulesTest, AnHonestCallPassesUnchangedAndLeavesNothing) {
  const std::string bytes = std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0) +
                            Headers(1) + Message(1, 100, 100, true) +
                            Frame(FrameType::kWindowUpdate, 0, 0, "\x01\x01\x01\x01");
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    ConnectionRules rules(&totals_, now_);
    std::string input, out;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      input += bytes.substr(at, piece);
      input.erase(0, rules.FromClient(input, now_, &out));
    }
    EXPECT_EQ(out, bytes);
    EXPECT_EQ(open_calls(), 1);
    EXPECT_EQ(request_bytes(), 105);
    Answer(rules, 1);
    EXPECT_TRUE(rules.is_idle());
    EXPECT_EQ(open_calls(), 0);
    EXPECT_EQ(request_bytes(), 0);
    EXPECT_FALSE(rules.has_frames_to_client());
  }
}

TEST_F(ConnectionRulesTest, WhatIsNotHttp2IsClosedAtItsFirstByte) {
  ConnectionRules rules(&totals_, now_);
  std::string out;
  rules.FromClient("G", now_, &out);
  EXPECT_EQ(rules.close_reason(), "NOT_HTTP2");
  EXPECT_EQ(out, "");
}

TEST_F(ConnectionRulesTest, AFrameBeyondTheLimitIsClosedByItsHead) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string out;
  rules.FromClient(
      Frame(FrameType::kData, 0, 3, std::string(kMaxPayloadBytes + 1, 'x')).substr(0, 9), now_,
      &out);
  EXPECT_EQ(rules.close_reason(), "FRAME_TOO_LARGE");
}

TEST_F(ConnectionRulesTest, SilenceBeforeThePrefaceEndsAfterItsTime) {
  ConnectionRules rules(&totals_, now_);
  After(rules, kMaxFrameTime);
  EXPECT_EQ(rules.close_reason(), "");
  After(rules, absl::Seconds(1));
  EXPECT_EQ(rules.close_reason(), "SILENT");
}

TEST_F(ConnectionRulesTest, AFrameThatIsNotFinishedEndsTheConnectionUnlessNobodyRead) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string out;
  EXPECT_EQ(rules.FromClient(Headers(3).substr(0, 12), now_, &out), 0U);
  After(rules, kMaxFrameTime + absl::Seconds(1), /*reading=*/false);
  EXPECT_EQ(rules.close_reason(), "");
  After(rules, kMaxFrameTime + absl::Seconds(1));
  EXPECT_EQ(rules.close_reason(), "SLOW_SENDER");
}

TEST_F(ConnectionRulesTest, AnIdleConnectionStays) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  After(rules, absl::Hours(1));
  EXPECT_EQ(rules.close_reason(), "");
}

TEST_F(ConnectionRulesTest, ACallWithTooMuchMetadataIsRefusedWithTheLimitAndItsConnectionGoesOn) {
  for (const size_t frames : {1, 2}) {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    const std::string half(kMaxMetadataBytes / frames, 'a');
    std::string block = Frame(FrameType::kHeaders,
                              frames == 1 ? frame_flag::kEndHeaders : uint8_t{0}, 3, half + "b");
    if (frames == 2) block += Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 3, half);
    const std::string sent = Sent(rules, block);
    // Decoded, and no call.
    EXPECT_EQ(sent, HeadersFrame(kNoCall, 0, half + "b" + (frames == 2 ? half : "")));
    const std::string told = ToClient(rules);
    EXPECT_EQ(ReasonIn(told), "METADATA_TOO_LARGE");
    EXPECT_THAT(ResponseOf(told)["grpc-message"], HasSubstr("more than the limit of 8192"));
    EXPECT_EQ(rules.close_reason(), "");
    EXPECT_EQ(Sent(rules, Headers(5, true)), Headers(3, true));
    rules.End(now_);
    After(rules, kResetCallTime);
  }
  EXPECT_EQ(open_calls(), 0);
}

TEST_F(ConnectionRulesTest, AnEndlessHeaderBlockIsCutByBytesByFramesAndByTime) {
  const std::string begin = Frame(FrameType::kHeaders, 0, 3, "x");
  {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    std::string out;
    rules.FromClient(begin, now_, &out);
    const std::string more = Frame(FrameType::kContinuation, 0, 3, std::string(16384, 'a'));
    for (int i = 0; i < 4; ++i) rules.FromClient(more, now_, &out);
    EXPECT_EQ(rules.close_reason(), "HEADERS_TOO_LARGE");
    EXPECT_EQ(out, "");
    const std::string told = ToClient(rules);
    EXPECT_EQ(ReasonIn(told), "METADATA_TOO_LARGE");
    EXPECT_THAT(told, HasSubstr(std::string("\0\0\0\x0b", 4)));
  }
  {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    std::string out;
    rules.FromClient(begin, now_, &out);
    for (int i = 0; i < kMaxHeaderBlockFrames; ++i) {
      rules.FromClient(Frame(FrameType::kContinuation, 0, 3), now_, &out);
    }
    EXPECT_EQ(rules.close_reason(), "HEADERS_TOO_LARGE");
    EXPECT_EQ(ReasonIn(ToClient(rules)), "");
  }
  {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    Sent(rules, begin);
    EXPECT_EQ(After(rules, kMaxFrameTime + absl::Seconds(1)), "");
    EXPECT_EQ(rules.close_reason(), "SLOW_SENDER");
  }
}

TEST_F(ConnectionRulesTest, NothingComesBetweenTheFramesOfAHeaderBlock) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string out;
  rules.FromClient(Frame(FrameType::kHeaders, 0, 3, "x") + Frame(FrameType::kPing, 0, 0), now_,
                   &out);
  EXPECT_EQ(rules.close_reason(), "BAD_HEADERS");
}

TEST_F(ConnectionRulesTest, ACallBeyondTheTotalIsRefusedAndItsFramesDoNoHarm) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  uint32_t stream = 3;
  for (int i = 0; i < SmallQuotas().max_open_calls; ++i, stream += 2) {
    EXPECT_EQ(Sent(rules, Headers(stream, true)), Headers(stream, true));
  }
  EXPECT_EQ(Sent(rules, Headers(stream)), Headers(kNoCall));
  const std::string refusal = ToClient(rules);
  EXPECT_EQ(ReasonIn(refusal), "TOO_MANY_CALLS");
  auto response = ResponseOf(refusal);
  EXPECT_EQ(response["stream"], std::to_string(stream));
  EXPECT_EQ(response["flags"], "5");  // END_STREAM, END_HEADERS
  EXPECT_EQ(response[":status"], "200");
  EXPECT_EQ(response["content-type"], "application/grpc");
  EXPECT_EQ(response["grpc-status"], "14");
  EXPECT_EQ(response["grpc-retry-pushback-ms"], "1000");
  EXPECT_EQ(response["rest"], RstStreamFrame(stream, Http2Error::kNoError));
  // Trailers of a call that the server has never heard of would be a new call to it.
  EXPECT_EQ(Sent(rules, Headers(stream, true)), Headers(kNoCall, true));
  EXPECT_EQ(errors_.Get().at("TOO_MANY_CALLS"), 1U);
  EXPECT_EQ(open_calls(), SmallQuotas().max_open_calls);
  Answer(rules, 3);
  EXPECT_EQ(Sent(rules, Headers(stream + 2)), Headers(stream));  // the server's next
  EXPECT_EQ(ToClient(rules), "");
}

TEST_F(ConnectionRulesTest, TheLastCallsAreNotForWhoSendsNoBodies) {
  HostQuotas quotas;
  quotas.max_open_calls = 160;
  GuardTotals totals(quotas, &counters_, &errors_);
  ConnectionRules rules(&totals, now_), other(&totals, now_);
  Begin(rules);
  Begin(other);
  std::string calls;
  for (uint32_t stream = 3; stream < 303; stream += 2) calls += Headers(stream);
  Sent(rules, calls);
  EXPECT_EQ(open_calls(), 140);
  EXPECT_EQ(Sent(other, Headers(3) + Message(3, 5, 5, true)), Headers(3) + Message(3, 5, 5, true));
}

// Its block may change the decoder's table, so that the server must see it.
TEST_F(ConnectionRulesTest, TheFirstCallOfAConnectionMayBeRefused) {
  ConnectionRules other(&totals_, now_);
  Begin(other);
  uint32_t stream = 3;
  for (int i = 0; i < SmallQuotas().max_open_calls; ++i, stream += 2) {
    Sent(other, Headers(stream, true));
  }
  ConnectionRules rules(&totals_, now_);
  const std::string settings = Frame(FrameType::kSettings, 0, 0);
  const std::string begin = std::string(kHttp2Preface) + settings;
  EXPECT_EQ(Sent(rules, begin + Headers(1)), begin + Headers(kNoCall));
  EXPECT_EQ(ReasonIn(rules.FromServer(settings, now_).substr(settings.size())), "TOO_MANY_CALLS");
}

TEST_F(ConnectionRulesTest, AResetCallKeepsItsSlotForATime) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Headers(3, true) + RstStreamFrame(3, Http2Error::kCancel));
  EXPECT_TRUE(rules.is_idle());
  EXPECT_EQ(open_calls(), 1);
  After(rules, kResetCallTime);
  EXPECT_EQ(open_calls(), 0);
}

TEST_F(ConnectionRulesTest, ResetsOfYoungCallsWaitWhenTheyHoldAQuarterOfTheSlots) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string flood;
  for (uint32_t stream = 3; stream < 23; stream += 2) {
    flood += Headers(stream, true) + RstStreamFrame(stream, Http2Error::kCancel);
  }
  std::string out;
  flood.erase(0, rules.FromClient(flood, now_, &out));
  EXPECT_TRUE(rules.is_waiting());
  EXPECT_EQ(open_calls(), 5);  // four that were reset, and one whose reset waits
  now_ += kResetCallTime;
  totals_.ReturnSlots(now_);
  flood.erase(0, rules.FromClient(flood, now_, &out));
  EXPECT_EQ(open_calls(), 5);
  EXPECT_FALSE(flood.empty());
}

TEST_F(ConnectionRulesTest, AClientMayCancelAllItsOldCallsAtOnce) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  std::string calls, resets;
  for (uint32_t stream = 3; stream < 35; stream += 2) {
    calls += Headers(stream, true);
    resets += RstStreamFrame(stream, Http2Error::kCancel);
  }
  Sent(rules, calls);
  now_ += absl::Seconds(1);
  EXPECT_EQ(Sent(rules, resets), resets);
  EXPECT_FALSE(rules.is_waiting());
}

TEST_F(ConnectionRulesTest, FloodsOfSmallFramesWaitAndPrioritiesAreDropped) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  EXPECT_EQ(Sent(rules, Frame(FrameType::kPriority, 0, 3, "12345") +
                            Frame(static_cast<FrameType>(0xfe), 0, 0, "x")),
            "");
  std::string flood;
  for (int i = 0; i < 5000; ++i) flood += Frame(FrameType::kPing, 0, 0, "12345678");
  std::string out;
  rules.FromClient(flood, now_, &out);
  EXPECT_TRUE(rules.is_waiting());
  EXPECT_LT(out.size(), flood.size() / 2);
  // Bodies in large frames are not counted.
  ConnectionRules honest(&totals_, now_);
  Begin(honest);
  Sent(honest, Headers(3) + Message(3, 1 << 20, 5));
  rules.End(now_);
  for (int i = 0; i < 63; ++i) {
    Sent(honest, Frame(FrameType::kData, 0, 3, std::string(16384, 'x')));
  }
  EXPECT_FALSE(honest.is_waiting());
}

// Calls beyond the total, until one is refused.
std::string FullUntil(uint32_t refused) {
  std::string calls;
  for (uint32_t stream = 3; stream <= refused; stream += 2) calls += Headers(stream, true);
  return calls;
}
constexpr uint32_t kFirstRefused = 3 + 2 * 16;

TEST_F(ConnectionRulesTest, RefusalsFitBetweenTheServersFramesAndHeaderBlocks) {
  const std::string server = Message(1, 100, 100) + Frame(FrameType::kHeaders, 0, 5, "hp") +
                             Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 5, "ack") +
                             Headers(7);
  const size_t block = Message(1, 100, 100).size(), after_block = server.size() - Headers(7).size();
  for (size_t cut = 0; cut <= server.size(); ++cut) {
    ConnectionRules rules(&totals_, now_);
    Begin(rules);
    std::string out = rules.FromServer(server.substr(0, cut), now_);
    Sent(rules, FullUntil(kFirstRefused));
    out += rules.FromServer(server.substr(cut), now_);
    std::string refusal = out, before;
    while (ParseFrameHead(refusal.data()).stream != kFirstRefused) {
      const size_t bytes = kFrameHeadBytes + ParseFrameHead(refusal.data()).payload_bytes;
      before += refusal.substr(0, bytes);
      refusal.erase(0, bytes);
    }
    EXPECT_EQ(ReasonIn(refusal), "TOO_MANY_CALLS") << cut;
    EXPECT_EQ(before, server.substr(0, before.size()));
    EXPECT_TRUE(before.size() <= block || before.size() >= after_block) << cut;
    rules.End(now_);
    now_ += kResetCallTime;
    totals_.ReturnSlots(now_);
  }
}

TEST_F(ConnectionRulesTest, TheServersSettingsComeFirst) {
  ConnectionRules rules(&totals_, now_);
  const std::string settings = Frame(FrameType::kSettings, 0, 0);
  Sent(rules, std::string(kHttp2Preface) + settings + Headers(1) +
                  Message(1, (1 << 20) + SmallQuotas().refused_message_bytes + 1, 5));
  EXPECT_FALSE(rules.has_frames_to_client());
  const std::string out = rules.FromServer(settings, now_);
  EXPECT_EQ(out.substr(0, settings.size()), settings);
  EXPECT_EQ(ReasonIn(out.substr(settings.size())), "MESSAGE_TOO_LARGE");
}

TEST_F(ConnectionRulesTest, WhoDoesNotTakeRefusalsIsNotReadFrom) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  const std::string calls = FullUntil(kFirstRefused + 2000);
  std::string out;
  const size_t taken = rules.FromClient(calls, now_, &out);
  EXPECT_LT(taken, calls.size());
  EXPECT_TRUE(rules.is_waiting());
  EXPECT_LE(ToClient(rules).size(), kMaxFramesToClient + 1024);
  EXPECT_GT(rules.FromClient(calls.substr(taken), now_, &out), 0U);
}

// A block that comes first after a table has become smaller must say so, and only gRPC's can.
TEST_F(ConnectionRulesTest, AClientWithASmallerTableIsRefusedWithoutWords) {
  ConnectionRules rules(&totals_, now_);
  Begin(rules);
  Sent(rules, Frame(FrameType::kSettings, 0, 0, std::string("\0\4\0\0\0\0\0\1\0\0\x0f\xff", 12)) +
                  FullUntil(kFirstRefused));
  EXPECT_EQ(ToClient(rules), RstStreamFrame(kFirstRefused, Http2Error::kRefusedStream));
}

}  // namespace
}  // namespace bulkhead
