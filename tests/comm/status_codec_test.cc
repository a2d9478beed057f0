#include "comm/status_codec.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "comm/exchange.h"

namespace bulkhead {
namespace {

TEST(StatusCodecTest, EveryPayloadTravels) {
  absl::Status status =
      WithLostRank(WithExitCode(absl::UnavailableError("two\nlines, 3 4\n"), ExitCode::kRankLost),
                   {.rank = 3, .host = "b"});
  status.SetPayload("bulkhead/anything", absl::Cord(std::string("a b\n\0c", 6)));
  const absl::Status there = DecodeStatus(EncodeStatus(status));
  EXPECT_EQ(there, status) << there;
  EXPECT_EQ(ExitCodeOf(there), ExitCode::kRankLost);
  EXPECT_EQ(LostRankOf(there), (LostRank{3, "b"}));
  EXPECT_TRUE(DecodeStatus(EncodeStatus(absl::OkStatus())).ok());
}

TEST(StatusCodecTest, WhatIsCutShortLosesWordsAlone) {
  const absl::Status status =
      WithExitCode(absl::UnavailableError(std::string(5000, 'x')), ExitCode::kRankLost);
  const absl::Status there = DecodeStatus(EncodeStatus(status).substr(0, 2000));
  EXPECT_EQ(ExitCodeOf(there), ExitCode::kRankLost);
  EXPECT_EQ(there.code(), status.code());
}

// A rank that shuts down in order waits for all the others to do so.
TEST(StatusCodecTest, AnAgreementDoesNotTravel) {
  EXPECT_FALSE(IsAgreed(DecodeStatus(EncodeStatus(MarkAgreed(absl::AbortedError("x"))))));
}

TEST(StatusCodecTest, WhatIsNoStatusIsRefused) {
  for (const char* text : {"", "14", "14 1", "14 1\nurl", "14 -1\nx", "14 9999999\nx", "x 0\ny"}) {
    EXPECT_EQ(DecodeStatus(text).code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace bulkhead
