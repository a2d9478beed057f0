#include "runtime/service/guard/http2_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/runtime/service/guard/frames.h"

namespace bulkhead {
namespace {

TEST(Http2FrameTest, AHeadIsReadWithoutTheReservedBit) {
  const std::string bytes = Frame(FrameType::kHeaders, 0x25, 0x80000003, std::string(300, 'x'));
  const FrameHead head = ParseFrameHead(bytes.data());
  EXPECT_EQ(head.payload_bytes, 300U);
  EXPECT_EQ(head.type, FrameType::kHeaders);
  EXPECT_EQ(head.flags, 0x25);
  EXPECT_EQ(head.stream, 3U);
}

TEST(Http2FrameTest, TheGuardsOwnFramesAreTheStandards) {
  EXPECT_EQ(RstStreamFrame(0x10203, Http2Error::kEnhanceYourCalm),
            Frame(FrameType::kRstStream, 0, 0x10203, std::string("\0\0\0\x0b", 4)));
  EXPECT_EQ(GoAwayFrame(5, Http2Error::kNoError),
            Frame(FrameType::kGoAway, 0, 0, std::string("\0\0\0\x05\0\0\0\0", 8)));
  EXPECT_EQ(WindowUpdateFrame(0x10203),
            Frame(FrameType::kWindowUpdate, 0, 0, std::string("\0\x01\x02\x03", 4)));
}

// The same frames, however the bytes are cut.
TEST(FrameReaderTest, FindsEveryHeadInPiecesOfAnySize) {
  std::string bytes;
  std::set<size_t> borders;
  for (const std::string& frame :
       {ShortHeaders(1), Message(1, 40, 40, true), Frame(FrameType::kPing, 0, 0),
        GoAwayFrame(0x80000305, Http2Error::kNoError),
        Frame(FrameType::kData, 0, 7, std::string(1000, 'y'))}) {
    bytes += frame;
    borders.insert(bytes.size());
  }
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<uint32_t> streams;
    EXPECT_TRUE(reader.at_border());
    for (size_t at = 0; at < bytes.size(); at += piece) {
      absl::string_view rest = absl::string_view(bytes).substr(at, piece);
      FrameHead head;
      while (reader.Next(&rest, &head)) {
        streams.push_back(head.stream);
        if (head.type == FrameType::kGoAway) {
          EXPECT_EQ(reader.last_stream(), 0x305U);
        }
      }
      EXPECT_TRUE(rest.empty());
      EXPECT_EQ(reader.at_border(), borders.count(std::min(at + piece, bytes.size())) > 0);
    }
    EXPECT_EQ(streams, (std::vector<uint32_t>{1, 1, 0, 0, 7}));
  }
}

}  // namespace
}  // namespace bulkhead
