// Calls on a transport that is not gRPC's: what another front end has to bring.
#include "runtime/service/call_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "runtime/service/drain_call.h"
#include "runtime/service/generate_call.h"
#include "runtime/service/local_call.h"
#include "runtime/service/refusal.h"
#include "runtime/service/tokenize.h"
#include "tests/runtime/service/call_fixture.h"

namespace bulkhead {
namespace {

using CallTransportTest = CallFixture;

TEST_F(CallTransportTest, AStreamWritesOneMessageAtATimeAndEndsOnce) {
  const auto call = Start<GenerateStream>(TextRequest());
  EXPECT_TRUE(transport_.accepted);
  ASSERT_EQ(transport_.written.size(), 1U);
  EXPECT_EQ(Written(0).accepted().prompt_tokens(), 3U);
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Send(1, {'d'}, "d");
  EXPECT_EQ(transport_.written.size(), 1U);  // the first is not on its way yet
  call->OnWritten(true);
  ASSERT_EQ(transport_.written.size(), 2U);
  EXPECT_EQ(Written(1).delta().tokens_size(), 2);
  EXPECT_EQ(Written(1).delta().text(), "cd");
  submitted.Finish(FinishReason::kEos, 2);
  call->OnWritten(true);
  ASSERT_EQ(transport_.written.size(), 3U);
  EXPECT_EQ(Written(2).finished().reason(), v1::FINISH_REASON_EOS);
  EXPECT_TRUE(transport_.end->ok());
  EXPECT_FALSE(core_.calls.WaitUntilClosed(absl::ZeroDuration()));
  call->OnClosed();
  EXPECT_TRUE(core_.calls.WaitUntilClosed(absl::ZeroDuration()));
  EXPECT_EQ(core_.host.answer_bytes.now(), 0);
}

TEST_F(CallTransportTest, AGenerationIsOneMessage) {
  const auto call = Start<GenerateUnary>(TextRequest());
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  EXPECT_GT(core_.host.answer_bytes.now(), 0);
  submitted.Finish(FinishReason::kEos, 1);
  v1::GenerateResponse response;
  ASSERT_TRUE(response.ParseFromString(transport_.written.at(0)));
  EXPECT_EQ(response.text(), "c");
  EXPECT_EQ(response.epoch(), core_.state.epoch());
  EXPECT_TRUE(transport_.end->ok());
  call->OnClosed();
}

TEST_F(CallTransportTest, ACancelledCallIsCancelledInTheEngineAndEndsWithItsCause) {
  for (const bool late : {false, true}) {
    transport_.end.reset();
    v1::GenerateRequest request = TextRequest();
    request.set_request_id(late ? "late" : "cancelled");
    const auto call = Start<GenerateStream>(request);
    engine_.Next();
    call->OnCancelled(late);
    EXPECT_EQ(engine_.WaitForCancel(request.request_id()).code(),
              late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled);
    call->OnWritten(false);
    ASSERT_TRUE(transport_.end.has_value());
    EXPECT_EQ(ReasonOf(*transport_.end), late ? reason::kDeadline : reason::kCancelled);
    EXPECT_EQ(transport_.trailers.at("x-tokens-emitted"), "0");
    call->OnClosed();
  }
}

TEST_F(CallTransportTest, AWaitForADrainEndsWithItsCauseWhereItsClientLeaves) {
  v1::DrainRequest request;
  request.set_wait(true);
  for (const bool late : {false, true}) {
    transport_.end.reset();
    const auto call = std::make_shared<DrainCall>(&core_, &transport_, "a test");
    call->Start(std::make_unique<SerializedRequest>(request));
    EXPECT_FALSE(transport_.end.has_value());
    call->OnCancelled(late);
    ASSERT_TRUE(transport_.end.has_value());
    EXPECT_EQ(core_.errors.Get()[late ? reason::kDeadline : reason::kCancelled], 1);
    call->OnClosed();
  }
}

TEST_F(CallTransportTest, AStreamWhoseClientLeavesAfterTheEngineHasEndedIsCancelled) {
  const auto call = Start<GenerateStream>(TextRequest());
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  call->OnWritten(false);
  ASSERT_TRUE(transport_.end.has_value());
  EXPECT_EQ(ReasonOf(*transport_.end), reason::kCancelled);
  EXPECT_EQ(transport_.written.size(), 1U);
  call->OnClosed();
}

TEST_F(CallTransportTest, ARefusedCallNeverReachesTheEngine) {
  v1::GenerateRequest request = TextRequest();
  request.set_text(std::string(kTestModelLen, 'a'));
  auto call = Start<GenerateUnary>(request);
  EXPECT_FALSE(transport_.accepted);
  EXPECT_EQ(ReasonOf(*transport_.end), reason::kPromptTooLong);
  EXPECT_TRUE(transport_.written.empty());
  call->OnClosed();
  transport_.end.reset();
  core_.state.SetDraining();
  call = Start<GenerateUnary>(TextRequest());
  EXPECT_EQ(ReasonOf(*transport_.end), reason::kDraining);
  call->OnClosed();
}

TEST_F(CallTransportTest, ALossEndsTheCallOnceWithItsRank) {
  const auto call = Start<GenerateStream>(TextRequest());
  const Submitted submitted = engine_.Next();
  core_.SetLost(absl::UnavailableError("rank 1 was lost"), {.rank = 1, .host = "b"});
  submitted.Send(0, {'c'}, "c");
  submitted.Fail(absl::UnavailableError("gone"));
  call->OnWritten(true);
  EXPECT_EQ(ErrorInfoOf(*transport_.end).metadata().at("rank"), "1");
  EXPECT_EQ(transport_.written.size(), 1U);
  call->OnClosed();
}

TEST_F(CallTransportTest, ACallWithoutTheEngineAnswersAtOnce) {
  v1::TokenizeRequest request;
  request.set_text("abc");
  request.set_add_special_tokens(false);
  const auto call =
      std::make_shared<LocalCall>(&core_, &transport_, LocalCall::Kind::kWork, Tokenize);
  call->Start(std::make_unique<SerializedRequest>(request));
  v1::TokenizeResponse response;
  ASSERT_TRUE(response.ParseFromString(transport_.written.at(0)));
  EXPECT_EQ(response.token_ids().ids_size(), 3);
  EXPECT_TRUE(transport_.end->ok());
  call->OnClosed();
}

TEST_F(CallTransportTest, AnAnswerThatIsNotReadIsDropped) {
  HostQuotas quotas;
  quotas.unread_answer_ms = 1;
  ServiceCore core(quotas);
  UnreadAnswers& unread = core.answers.unread();
  unread.Add(&core, 100, transport_.Dropper());
  while (transport_.drops == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  unread.Remove(&core);
  EXPECT_EQ(transport_.drops, 1);
}

TEST_F(CallTransportTest, AnAnswerThatDoesNotWaitForItsClientIsAskedAgain) {
  HostQuotas quotas;
  quotas.unread_answer_ms = 1;
  ServiceCore core(quotas);
  transport_.drops_refused = 3;
  UnreadAnswers& unread = core.answers.unread();
  unread.Add(&core, 100, transport_.Dropper());
  while (transport_.drops < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  while (core.errors.Get()[reason::kSlowReader] == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  unread.Remove(&core);
  EXPECT_EQ(core.errors.Get()[reason::kSlowReader], 1);
}

}  // namespace
}  // namespace bulkhead
