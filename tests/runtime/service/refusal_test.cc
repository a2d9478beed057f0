#include "runtime/service/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace bulkhead {
namespace {

TEST(RefusalTest, DetailsTravelAsTypedMessages) {
  const absl::Status status =
      WithRetryAfter(WithReason(absl::UnavailableError("not now"), reason::kDraining, {{"a", "1"}}),
                     absl::Milliseconds(2500));
  const google::rpc::Status rpc = ToRpcStatus(status);
  EXPECT_EQ(rpc.code(), 14);
  EXPECT_EQ(rpc.message(), "not now");
  ASSERT_EQ(rpc.details_size(), 2);
  google::rpc::ErrorInfo error_info;
  google::rpc::RetryInfo retry;
  for (const auto& detail : rpc.details()) {
    detail.UnpackTo(&error_info);
    detail.UnpackTo(&retry);
  }
  EXPECT_EQ(error_info.reason(), "DRAINING");
  EXPECT_EQ(error_info.domain(), "bulkhead");
  EXPECT_EQ(error_info.metadata().at("a"), "1");
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500000000);
  EXPECT_EQ(RetryAfter(status), absl::Milliseconds(2500));
}

TEST(RefusalTest, TheFirstReasonStands) {
  const absl::Status status =
      WithReason(WithReason(absl::InternalError("x"), reason::kSlowReader), reason::kInternal);
  EXPECT_EQ(ReasonOf(status), reason::kSlowReader);
  EXPECT_TRUE(WithReason(absl::OkStatus(), reason::kInternal).ok());
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
}

TEST(RefusalTest, PayloadsThatAreNoMessagesStayHere) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload("bulkhead/exit_code", absl::Cord("6"));
  EXPECT_EQ(ToRpcStatus(status).details_size(), 0);
}

TEST(RefusalTest, LongMessagesAreCutBetweenCharacters) {
  std::string text(1023, 'a');
  for (int i = 0; i < 4000; ++i) text += "\xE2\x82\xAC";
  const google::rpc::Status rpc = ToRpcStatus(absl::InternalError(text));
  EXPECT_EQ(rpc.message(), std::string(1023, 'a') + "...");
}

TEST(RefusalTest, QuotedTextIsEscapedAndCut) {
  EXPECT_EQ(Quoted("a\n\xFF"), "\"a\\n\\xff\"");
  EXPECT_EQ(Quoted(std::string(100, 'x'), 3), "\"xxx...\"");
}

}  // namespace
}  // namespace bulkhead
