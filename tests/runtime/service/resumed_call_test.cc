// What a resumed answer makes rank 0 hold and do before its first new token.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/service/generate_call.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/call_fixture.h"

namespace bulkhead {
namespace {

// Every token is a long text.
class LongTextTokenizer final : public LetterTokenizer {
 public:
  static constexpr size_t kBytes = 40'000;
  std::string Decode(absl::Span<const int32_t> ids, bool /*skip*/) const override {
    return std::string(ids.size() * kBytes, 'x');
  }
};

const Tokenizer& LongTexts() {
  static const LongTextTokenizer tokenizer;
  return tokenizer;
}

class ResumedCallTest : public CallFixture {
 protected:
  ResumedCallTest() : CallFixture(&LongTexts()) {}

  static v1::GenerateRequest Resumed(int num_emitted) {
    v1::GenerateRequest request = TextRequest();
    request.mutable_stopping()->set_max_tokens(num_emitted + 1);
    request.mutable_sampling()->set_temperature(0);
    for (int i = 0; i < num_emitted; ++i) request.mutable_resume()->add_emitted_token_ids('a');
    return request;
  }
  int64_t Held() const { return static_cast<int64_t>(core_.host.answer_bytes.now()); }
};

TEST_F(ResumedCallTest, AStreamCountsTheTextThatIsNotSentYetUntilTheFirstDelta) {
  constexpr int64_t kText = 10 * LongTextTokenizer::kBytes;
  v1::GenerateRequest request = Resumed(10);
  const auto call = Start<GenerateStream>(request);
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.text_bytes_unsent, kText);
  EXPECT_GT(Held(), kText);
  call->OnWritten(true);  // Accepted
  EXPECT_GT(Held(), kText);
  EXPECT_LT(Held(), kText + 2 * kStreamShareBytes);
  submitted.Send(10, {'b'}, std::string(kText, 'x'));
  EXPECT_GT(Held(), kText) << "of the event";
  call->OnWritten(true);
  submitted.Send(11, {'c'}, "x");
  EXPECT_LE(Held(), kStreamShareBytes);
  EXPECT_EQ(Written(1).delta().text().size(), kText);
  submitted.Finish(FinishReason::kMaxTokens, 12);
  call->OnWritten(true);
  call->OnClosed();
  EXPECT_EQ(Held(), 0);
}

TEST_F(ResumedCallTest, TextThatWasSentIsNotCounted) {
  v1::GenerateRequest request = Resumed(10);
  request.mutable_resume()->set_text_bytes_sent(10 * LongTextTokenizer::kBytes - 3);
  const auto call = Start<GenerateStream>(request);
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.text_bytes_unsent, 3U);
  EXPECT_LE(Held(), kStreamShareBytes + 3);
  submitted.Finish(FinishReason::kMaxTokens, 11);
  call->OnWritten(true);
  call->OnClosed();
}

TEST_F(ResumedCallTest, NoTextIsCountedWhereNoneIsWanted) {
  v1::GenerateRequest request = Resumed(40);
  request.mutable_output()->set_text(false);
  const auto call = Start<GenerateStream>(request);
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.text_bytes_unsent, 0U);
  submitted.Finish(FinishReason::kMaxTokens, 41);
  call->OnWritten(true);
  call->OnClosed();
}

TEST_F(ResumedCallTest, MoreTextThanWaitsForAStreamIsRefusedThereAndNotInOneMessage) {
  const v1::GenerateRequest request = Resumed(40);
  const auto stream = Start<GenerateStream>(request);
  const absl::Status end = transport_.end.value_or(absl::OkStatus());
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
  EXPECT_EQ(ReasonOf(end), reason::kInvalidValue);
  EXPECT_FALSE(engine_.HasNext());
  stream->OnClosed();
  transport_.end.reset();
  const auto call = Start<GenerateUnary>(request);
  const Submitted submitted = engine_.Next();
  EXPECT_GT(Held(), int64_t{40 * LongTextTokenizer::kBytes});
  submitted.Finish(FinishReason::kMaxTokens, 41);
  call->OnClosed();
}

TEST_F(ResumedCallTest, TextThatAllAnswersTogetherHaveNoRoomForIsRefused) {
  std::vector<std::shared_ptr<GenerateUnary>> calls;
  std::deque<FakeTransport> transports;
  v1::GenerateRequest request = Resumed(60);
  absl::Status end;
  for (int i = 0; i < 1000 && end.ok(); ++i) {
    request.set_request_id("r" + std::to_string(i));
    calls.push_back(std::make_shared<GenerateUnary>(&core_, &transports.emplace_back()));
    calls.back()->Start(std::make_unique<SerializedRequest>(request));
    end = transports.back().end.value_or(absl::OkStatus());
  }
  EXPECT_EQ(ReasonOf(end), reason::kAnswerBudget);
  EXPECT_LE(Held(), core_.quotas.answer_bytes);
  while (engine_.HasNext()) engine_.Next().Finish(FinishReason::kMaxTokens, 60);
  for (const auto& call : calls) call->OnClosed();
}

// By the time that it takes: of each token, and of each stop string.
TEST_F(ResumedCallTest, ManyEmittedTokensWaitForTheTextWorkerWithTheirWork) {
  const auto most = static_cast<size_t>(core_.quotas.text_bytes);
  const auto release = HoldTextWorker(most - 40'000);
  const auto end_of = [&](int emitted, int stops, int id) {
    v1::GenerateRequest request = Resumed(emitted);
    request.set_request_id("r" + std::to_string(id));
    for (int i = 0; i < stops; ++i) request.mutable_stopping()->add_stop("stop");
    transport_.end.reset();
    const auto call = Start<GenerateUnary>(request);
    const std::string ended = ReasonOf(transport_.end.value_or(absl::OkStatus()));
    if (engine_.HasNext()) engine_.Next().Finish(FinishReason::kMaxTokens, emitted);
    call->OnClosed();
    return ended;
  };
  EXPECT_EQ(end_of(50, 0, 1), "") << "at once";
  EXPECT_EQ(end_of(3000, 0, 2), reason::kQueueFull);
  EXPECT_EQ(end_of(1000, 0, 3), reason::kInvalidValue) << "at once: too many for the model";
  EXPECT_EQ(end_of(1000, 16, 4), reason::kQueueFull);
  release->Notify();
}

}  // namespace
}  // namespace bulkhead
