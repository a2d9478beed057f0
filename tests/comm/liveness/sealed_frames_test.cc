#include "comm/liveness/sealed_frames.h"

#include <gtest/gtest.h>

#include <string>

namespace bulkhead {
namespace {

TEST(SealedFrames, ArriveWholeHoweverTheStreamIsCut) {
  FrameSealer sealer("key");
  std::string stream = sealer.Seal(FrameKind::kBeat, "");
  stream += sealer.Seal(FrameKind::kAbort, "why");
  stream += sealer.Seal(FrameKind::kEnding, std::string(kMaxFrameTextBytes + 10, 'x'));
  for (const size_t step : {1, 7, 5000}) {
    FrameOpener opener("key");
    std::vector<Frame> frames;
    for (size_t at = 0; at < stream.size(); at += step) {
      opener.Feed(absl::string_view(stream).substr(at, step));
      Frame frame;
      while (true) {
        const auto got = opener.Next(frame);
        ASSERT_TRUE(got.ok()) << got.status();
        if (!*got) break;
        frames.push_back(frame);
      }
    }
    ASSERT_EQ(frames.size(), 3);
    EXPECT_EQ(frames[0].kind, FrameKind::kBeat);
    EXPECT_EQ(frames[1].text, "why");
    EXPECT_EQ(frames[2].text.size(), kMaxFrameTextBytes);
  }
}

absl::Status Open(const std::string& key, const std::string& stream) {
  FrameOpener opener(key);
  opener.Feed(stream);
  Frame frame;
  while (true) {
    const auto got = opener.Next(frame);
    if (!got.ok()) return got.status();
    if (!*got) return absl::OkStatus();
  }
}

TEST(SealedFrames, AreRefusedWithAnotherKeyAChangedBitOrInAnotherOrder) {
  FrameSealer sealer("key");
  const std::string first = sealer.Seal(FrameKind::kBeat, "one");
  const std::string second = sealer.Seal(FrameKind::kBeat, "two");
  EXPECT_TRUE(Open("key", first + second).ok());
  EXPECT_TRUE(absl::IsDataLoss(Open("other", first)));
  EXPECT_TRUE(absl::IsDataLoss(Open("key", first + first)));
  EXPECT_TRUE(absl::IsDataLoss(Open("key", second)));
  for (size_t i = 4; i < first.size(); ++i) {
    std::string changed = first;
    changed[i] ^= 1;
    EXPECT_TRUE(absl::IsDataLoss(Open("key", changed))) << i;
  }
}

TEST(SealedFrames, ALengthThatNoFrameHasIsRefusedBeforeItIsWaitedFor) {
  EXPECT_TRUE(absl::IsDataLoss(Open("key", "GET / HTTP/1.1\r\n")));
}

}  // namespace
}  // namespace bulkhead
