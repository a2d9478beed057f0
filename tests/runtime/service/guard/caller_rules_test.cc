// Calls that need an API key: the header block is read in every form that HPACK has, and a call
// that its caller may not make never reaches the server.
#include <gmock/gmock.h>
#include <nghttp2/nghttp2.h>

#include <utility>
#include <vector>

#include "runtime/service/access/access_control.h"
#include "runtime/service/guard/header_reader.h"
#include "tests/runtime/service/guard/rules_fixture.h"

namespace bulkhead {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr char kKey[] = "generate-key-0123456789";
constexpr char kGenerate[] = "/bulkhead.v1.Generation/Generate";

// A client's encoder, with its table and Huffman code.
class Encoder {
 public:
  explicit Encoder(size_t table_bytes = 4096) { nghttp2_hd_deflate_new(&deflater_, table_bytes); }
  ~Encoder() { nghttp2_hd_deflate_del(deflater_); }

  std::string Block(const Fields& fields) {
    std::vector<nghttp2_nv> names;
    for (const auto& [name, value] : fields) {
      names.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                       reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                       value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    std::string block(nghttp2_hd_deflate_bound(deflater_, names.data(), names.size()), '\0');
    const ssize_t bytes = nghttp2_hd_deflate_hd(deflater_, reinterpret_cast<uint8_t*>(block.data()),
                                                block.size(), names.data(), names.size());
    EXPECT_GT(bytes, 0);
    block.resize(static_cast<size_t>(bytes));
    return block;
  }
  std::string Call(const std::string& path, const std::string& authorization) {
    Fields fields = {{":method", "POST"}, {":scheme", "http"}, {":path", path}, {"te", "trailers"}};
    if (!authorization.empty()) fields.emplace_back("authorization", authorization);
    return Block(fields);
  }

 private:
  nghttp2_hd_deflater* deflater_ = nullptr;
};

std::string Bearer(const std::string& key) { return "Bearer " + key; }

TEST(HeaderReaderTest, ReadsBlocksThatShareATable) {
  Encoder encoder;
  HeaderReader reader;
  for (int i = 0; i < 3; ++i) {  // the second time mere indices
    reader.Clear();
    ASSERT_TRUE(reader.Read(encoder.Call(kGenerate, Bearer(kKey))));
    EXPECT_EQ(reader.path(), kGenerate);
    EXPECT_EQ(reader.authorization(), Bearer(kKey));
  }
  reader.Clear();
  ASSERT_TRUE(reader.Read(encoder.Call("/other", "")));
  EXPECT_EQ(reader.path(), "/other");
  EXPECT_EQ(reader.authorization(), "");
}

TEST(HeaderReaderTest, TwoKeysAndLongOnesAreNone) {
  Encoder encoder;
  HeaderReader reader;
  ASSERT_TRUE(reader.Read(
      encoder.Block({{"authorization", Bearer(kKey)}, {"authorization", Bearer(kKey)}})));
  EXPECT_EQ(reader.authorization(), "?");
  reader.Clear();
  ASSERT_TRUE(reader.Read(encoder.Block({{"authorization", std::string(4000, 'k')}})));
  EXPECT_EQ(reader.authorization(), "?");
}

TEST(HeaderReaderTest, RefusesWhatIsNotHpack) {
  EXPECT_FALSE(HeaderReader().Read("\xff\xff\xff\xff\xff\xff"));  // an index that is nowhere
  EXPECT_FALSE(HeaderReader().Read("\x40\x0a"));                  // a name that is not there
}

class CallerRulesTest : public ConnectionRulesTest {
 protected:
  static std::string Framed(uint32_t stream, const std::string& block, uint8_t flags = 0) {
    return Frame(FrameType::kHeaders, frame_flag::kEndHeaders | flags, stream, block);
  }
  void Start(ConnectionRules& rules) {
    Sent(rules, std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0) +
                    Frame(FrameType::kSettings, frame_flag::kAck, 0));
    rules.FromServer(Frame(FrameType::kSettings, 0, 0), now_);
  }
  // The streams of HEADERS in `frames`, which the server gets.
  static std::vector<uint32_t> Opened(const std::string& frames) {
    std::vector<uint32_t> streams;
    ForEachFrame(frames, [&](const FrameHead& head, absl::string_view) {
      if (head.type == FrameType::kHeaders) streams.push_back(head.stream);
    });
    return streams;
  }

  const AccessControl access_ = *AccessControl::Read({.environment_key = kKey});
  GuardTotals keyed_{SmallQuotas(), &counters_, &errors_, &access_};
  Encoder encoder_;
};

TEST_F(CallerRulesTest, ACallWithoutAKeyNeverReachesTheServer) {
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  const std::string sent =
      Sent(rules, Framed(1, encoder_.Call(kGenerate, "")) + Message(1, 1 << 20, 100));
  EXPECT_THAT(Opened(sent), testing::ElementsAre(kNoCall));  // decoded, and no call
  EXPECT_EQ(open_calls(), 0);
  EXPECT_EQ(request_bytes(), 0);
  const std::string answer = ToClient(rules);
  EXPECT_EQ(ResponseOf(answer)["grpc-status"], "16");
  EXPECT_EQ(ReasonIn(answer), "UNAUTHENTICATED");
  EXPECT_EQ(errors_.Get()["UNAUTHENTICATED"], 1U);
}

TEST_F(CallerRulesTest, ACallWithItsKeyGoesOnAsItIs) {
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  const std::string block = encoder_.Call(kGenerate, Bearer(kKey));
  const std::string sent = Sent(rules, Framed(1, block, frame_flag::kEndStream));
  EXPECT_EQ(sent, Framed(1, block, frame_flag::kEndStream));
  EXPECT_EQ(open_calls(), 1);
}

TEST_F(CallerRulesTest, ProbesAndCertificatesNeedNoKey) {
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  Sent(rules, Framed(1, encoder_.Call("/grpc.health.v1.Health/Check", "")));
  EXPECT_EQ(open_calls(), 1);
  ConnectionRules certified(&keyed_, now_, kGenerateRole);
  Start(certified);
  Encoder other;
  Sent(certified, Framed(1, other.Call(kGenerate, "")));
  EXPECT_EQ(open_calls(), 2);
  Sent(certified, Framed(3, other.Call("/bulkhead.v1.Control/Drain", "")));
  EXPECT_EQ(ReasonIn(ToClient(certified)), "PERMISSION_DENIED");
}

TEST_F(CallerRulesTest, ABlockInSeveralFramesIsReadBeforeTheServerHasAnyOfIt) {
  for (const bool has_key : {true, false}) {
    ConnectionRules rules(&keyed_, now_);
    Start(rules);
    Encoder encoder;
    const std::string block = encoder.Call(kGenerate, has_key ? Bearer(kKey) : "");
    EXPECT_EQ(Sent(rules, Frame(FrameType::kHeaders, frame_flag::kPriority, 1,
                                std::string(5, '\0') + block.substr(0, 7)) +
                              Frame(FrameType::kContinuation, 0, 1, block.substr(7, 3))),
              "");
    EXPECT_EQ(rules.unaccounted_bytes(), 5 + 10);
    const std::string sent =
        Sent(rules, Frame(FrameType::kContinuation, frame_flag::kEndHeaders, 1, block.substr(10)) +
                        Frame(FrameType::kData, frame_flag::kEndStream, 1));
    EXPECT_EQ(sent, Frame(FrameType::kHeaders, frame_flag::kPriority | frame_flag::kEndHeaders,
                          has_key ? 1 : kNoCall, std::string(5, '\0') + block) +
                        Frame(FrameType::kData, frame_flag::kEndStream, has_key ? 1 : kNoCall));
    EXPECT_EQ(rules.close_reason(), "");
    EXPECT_EQ(ReasonIn(ToClient(rules)), has_key ? "" : "UNAUTHENTICATED");
    EXPECT_EQ(rules.is_idle(), !has_key);
    rules.End(now_);
  }
}

// gRPC ignores the flag and decodes the padding, which would name the method that is called.
TEST_F(CallerRulesTest, PaddingCannotHideAMethod) {
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  const std::string seen = encoder_.Call("/grpc.health.v1.Health/Check", "");
  const std::string hidden = Encoder().Block({{":path", "/bulkhead.v1.Control/Drain"}});
  const std::string padding = hidden + std::string(0x83 - hidden.size(), '\x83');
  std::string out;
  rules.FromClient(Frame(FrameType::kHeaders, frame_flag::kEndHeaders | frame_flag::kPadded, 1,
                         '\x83' + seen + padding),
                   now_, &out);
  EXPECT_EQ(rules.close_reason(), "BAD_HEADERS");
  EXPECT_EQ(out, "");
  EXPECT_EQ(open_calls(), 0);
}

TEST_F(CallerRulesTest, BlocksThatCannotBeReadEndTheConnection) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {Framed(1, "\xff\xff\xff\xff\xff\xff"), "BAD_HEADERS"},
      {Frame(FrameType::kHeaders, frame_flag::kEndHeaders | frame_flag::kPadded, 1, "\x09zz"),
       "BAD_HEADERS"},
      {Frame(FrameType::kHeaders, frame_flag::kEndHeaders | frame_flag::kPriority, 1, "zz"),
       "BAD_HEADERS"}};
  for (const auto& [frame, reason] : bad) {
    ConnectionRules rules(&keyed_, now_);
    Start(rules);
    std::string out;
    rules.FromClient(frame, now_, &out);
    EXPECT_EQ(rules.close_reason(), reason);
  }
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  const std::string value(12 << 10, 'x');
  std::string out;
  const std::string block = encoder_.Block({{"a", value}, {"b", value}, {"c", value}});
  ASSERT_GT(block.size(), kMaxPayloadBytes);
  rules.FromClient(Frame(FrameType::kHeaders, 0, 1, block.substr(0, 16000)) +
                       Frame(FrameType::kContinuation, 0, 1, block.substr(16000)),
                   now_, &out);
  EXPECT_EQ(rules.close_reason(), "HEADERS_TOO_LARGE");
}

TEST_F(CallerRulesTest, ALargeBlockWithoutAKeyIsARefusedCallers) {
  ConnectionRules rules(&keyed_, now_);
  Start(rules);
  Fields fields = {{":path", kGenerate}, {"x", std::string(2 * kMaxMetadataBytes, 'x')}};
  const std::string block = encoder_.Block(fields);
  ASSERT_GT(block.size(), kMaxMetadataBytes);
  ASSERT_LT(block.size(), kMaxPayloadBytes);
  Sent(rules, Framed(1, block));
  EXPECT_EQ(ReasonIn(ToClient(rules)), "UNAUTHENTICATED");
  fields.emplace_back("authorization", Bearer(kKey));
  Sent(rules, Framed(3, encoder_.Block(fields)));
  EXPECT_EQ(ReasonIn(ToClient(rules)), "METADATA_TOO_LARGE");
}

TEST_F(CallerRulesTest, AConnectionEndsWithTheLastOfManyRefusals) {
  for (const bool in_two_frames : {false, true}) {
    ConnectionRules rules(&keyed_, now_);
    Start(rules);
    Encoder encoder;
    std::string out;
    for (int i = 0; i <= kMaxRefusedCallers; ++i) {
      EXPECT_EQ(rules.close_reason(), "");
      const uint32_t stream = 2 * i + 1;
      const std::string block = encoder.Call(kGenerate, "Bearer unknown");
      const size_t first = in_two_frames ? 2 : block.size();
      std::string frames = Frame(FrameType::kHeaders, in_two_frames ? 0 : frame_flag::kEndHeaders,
                                 stream, block.substr(0, first));
      if (in_two_frames) {
        frames +=
            Frame(FrameType::kContinuation, frame_flag::kEndHeaders, stream, block.substr(first));
      }
      rules.FromClient(frames, now_, &out);
      ToClient(rules);
    }
    EXPECT_EQ(rules.close_reason(), "UNAUTHENTICATED");
    EXPECT_THAT(Opened(out), testing::Each(kNoCall));
    rules.End(now_);
  }
}

}  // namespace
}  // namespace bulkhead
