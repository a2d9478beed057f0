// What a call of the engine waits for before the engine has its request.
#include "runtime/service/engine_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/service/generate_call.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/call_fixture.h"

namespace bulkhead {
namespace {

class EngineCallTest : public CallFixture {
 protected:
  static v1::GenerateRequest WithGrammar(const std::string& regex) {
    v1::GenerateRequest request = TextRequest();
    request.mutable_structured()->set_regex(regex);
    return request;
  }
};

TEST_F(EngineCallTest, AMessageWithAGrammarWaitsForTheTextWorkerWithAllOfItsBytes) {
  const auto go_on = std::make_shared<absl::Notification>();  // outlives the wait
  const auto most = static_cast<size_t>(core_.quotas.text_bytes);
  ASSERT_TRUE(
      core_.text_worker.Post(most - 40'000, [go_on] { go_on->WaitForNotification(); }).ok());
  v1::GenerateRequest request = TextRequest();
  request.mutable_structured()->set_json_schema(std::string(50'000, ' '));
  const auto call = Start<GenerateUnary>(request);
  const absl::Status end = transport_.end.value_or(absl::OkStatus());
  go_on->Notify();
  EXPECT_EQ(ReasonOf(end), reason::kQueueFull) << end;
  call->OnClosed();
}

TEST_F(EngineCallTest, AMessageWithALongTextWaitsWithTheBytesOfItsManySmallStrings) {
  const auto most = static_cast<size_t>(core_.quotas.text_bytes);
  const auto release = HoldTextWorker(most - 100'000);
  v1::GenerateRequest request = TextRequest();
  request.set_text(std::string(TextWorker::kLongTextBytes + 1, 'a'));
  for (int i = 0; i < 6000; ++i) request.mutable_stopping()->add_stop("");
  (*request.mutable_sampling()->mutable_logit_bias())[1] = 2;  // a map
  const auto call = Start<GenerateUnary>(request);
  EXPECT_EQ(ReasonOf(transport_.end.value_or(absl::OkStatus())), reason::kQueueFull);
  release->Notify();
  call->OnClosed();
}

TEST_F(EngineCallTest, FewResumedAnswersWithAGrammarWaitForTheTextWorker) {
  const auto most = static_cast<size_t>(core_.quotas.text_bytes);
  absl::Notification go_on, end_on;
  ASSERT_TRUE(core_.text_worker.Post(1, [&go_on] { go_on.WaitForNotification(); }).ok());
  v1::GenerateRequest request = TextRequest();
  request.mutable_structured()->set_regex("a+");
  request.mutable_resume()->add_emitted_token_ids('a');
  // Longer ones are parsed by the text worker, and then wait like others.
  v1::GenerateRequest longer = request;
  longer.mutable_structured()->set_regex(std::string(100'000, 'a'));
  FakeTransport longers_transport;
  const auto longers_call = std::make_shared<GenerateUnary>(&core_, &longers_transport);
  longers_call->Start(std::make_unique<SerializedRequest>(longer));
  ASSERT_TRUE(
      core_.text_worker
          .Post(most - TextWorker::kGrammarBytes / 2, [&end_on] { end_on.WaitForNotification(); })
          .ok());
  const auto call = Start<GenerateUnary>(request);
  const absl::Status end = transport_.end.value_or(absl::OkStatus());
  EXPECT_EQ(ReasonOf(end), reason::kQueueFull) << end;
  EXPECT_TRUE(absl::StrContains(end.message(), "counts as 1048576"));
  go_on.Notify();
  absl::Notification parsed;
  end_on.Notify();
  while (!core_.text_worker.Post(1, [&parsed] { parsed.Notify(); }).ok()) std::this_thread::yield();
  parsed.WaitForNotification();
  const absl::Status longers_end = longers_transport.end.value_or(absl::OkStatus());
  EXPECT_EQ(ReasonOf(longers_end), reason::kQueueFull) << longers_end;
  call->OnClosed();
  longers_call->OnClosed();
}

TEST_F(EngineCallTest, AGrammarThatIsNotCompiledCountsAsMuchAsItsWork) {
  const auto most = static_cast<size_t>(core_.quotas.text_bytes);
  const auto release = HoldTextWorker(most - TextWorker::kGrammarBytes / 2);
  const auto call = Start<GenerateUnary>(WithGrammar("a+"));
  EXPECT_EQ(ReasonOf(transport_.end.value_or(absl::OkStatus())), reason::kQueueFull);
  call->OnClosed();
  release->Notify();
}

TEST_F(EngineCallTest, AGrammarThatIsCompiledWaitsForNoOther) {
  const auto first = Start<GenerateUnary>(WithGrammar("a+"));
  engine_.Next().Finish(FinishReason::kEos, 0);
  WaitForTextWorker();
  first->OnClosed();
  const auto release = HoldTextWorker(static_cast<size_t>(core_.quotas.text_bytes) - 1);
  transport_.end.reset();
  const auto call = Start<GenerateUnary>(WithGrammar("a+"));
  EXPECT_TRUE(engine_.HasNext());  // while the text worker is busy
  release->Notify();
  const Submitted submitted = engine_.Next();
  EXPECT_NE(submitted.request.logits.grammar, nullptr);
  submitted.Finish(FinishReason::kEos, 0);
  WaitForTextWorker();
  call->OnClosed();
}

TEST_F(EngineCallTest, AFullQueueRefusesBeforeAnythingIsBuilt) {
  const auto release = HoldTextWorker();
  engine_.FillWith(WithReason(absl::ResourceExhaustedError("full"), reason::kQueueFull));
  for (v1::GenerateRequest request : {WithGrammar("a+"), TextRequest()}) {
    transport_.end.reset();
    request.set_model("another");  // which would be the answer
    const auto call = Start<GenerateUnary>(request);
    EXPECT_EQ(ReasonOf(transport_.end.value_or(absl::OkStatus())), reason::kQueueFull);
    call->OnClosed();
  }
  release->Notify();
}

TEST_F(EngineCallTest, ARequestThatWaitsForTheTextWorkerIsAborted) {
  const auto release = HoldTextWorker();
  const auto call = Start<GenerateUnary>(WithGrammar("a+"));
  EXPECT_EQ(core_.calls.RunningIds(), std::vector<std::string>{"r"});
  const auto found = core_.calls.Find("r");
  ASSERT_NE(found, nullptr);
  found->Cancel(WithReason(absl::CancelledError("aborted"), reason::kAborted));
  release->Notify();
  WaitForTextWorker();
  EXPECT_EQ(ReasonOf(transport_.end.value_or(absl::OkStatus())), reason::kAborted);
  EXPECT_FALSE(transport_.accepted);
  EXPECT_TRUE(core_.calls.RunningIds().empty());
  call->OnClosed();
}

TEST_F(EngineCallTest, AnAnswerIsUnsentUntilItsCallIsClosed) {
  const auto call = Start<GenerateUnary>(TextRequest());
  FakeTransport others_transport;
  const auto refused = std::make_shared<GenerateUnary>(&core_, &others_transport);
  refused->Start(std::make_unique<SerializedRequest>(TextRequest()));  // the id is in flight
  EXPECT_EQ(core_.calls.WaitForAdmitted(absl::ZeroDuration()), 1);
  engine_.Next().Finish(FinishReason::kEos, 0);
  EXPECT_TRUE(transport_.end.has_value());
  EXPECT_EQ(core_.calls.WaitForAdmitted(absl::ZeroDuration()), 1);
  call->OnClosed();
  EXPECT_EQ(core_.calls.WaitForAdmitted(absl::ZeroDuration()), 0);
  refused->OnClosed();
}

TEST_F(EngineCallTest, ATimeLimitCountsFromTheArrival) {
  const auto release = HoldTextWorker();
  v1::GenerateRequest request = WithGrammar("a+");
  request.set_time_limit_ms(1);
  const RequestOrigin origin = ArrivedNow();
  const auto call = std::make_shared<GenerateUnary>(&core_, &transport_);
  call->Start(std::make_unique<SerializedRequest>(request, origin));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  release->Notify();
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.arrived_ns, origin.arrived_ns);
  EXPECT_EQ(submitted.request.logits.grammar, nullptr) << "compiled for nothing";
  submitted.Finish(FinishReason::kTimeLimit, 0);
  WaitForTextWorker();
  call->OnClosed();
}

// Encodes once the call has ended. Relaxed, so that nothing here orders the two threads.
class WaitingTokenizer final : public LetterTokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special_tokens) const override {
    encodes.store(true, std::memory_order_relaxed);
    while (!may_go_on.load(std::memory_order_relaxed)) std::this_thread::yield();
    return LetterTokenizer::Encode(text, add_special_tokens);
  }
  mutable std::atomic<bool> encodes{false};
  std::atomic<bool> may_go_on{false};
};

class CallBeingBuiltTest : public CallFixture {
 protected:
  CallBeingBuiltTest() : CallFixture(&waiting_) {}
  WaitingTokenizer waiting_;
};

// ThreadSanitizer reports it where the end reads what the other thread goes on to write.
TEST_F(CallBeingBuiltTest, AStreamMayEndWhileItsRequestIsBuilt) {
  v1::GenerateRequest request = TextRequest();
  request.mutable_structured()->set_regex("a+");  // it is built by the text worker
  const auto call = Start<GenerateStream>(request);
  while (!waiting_.encodes.load(std::memory_order_relaxed)) std::this_thread::yield();
  core_.calls.EndAll(IsStopping());
  waiting_.may_go_on.store(true, std::memory_order_relaxed);
  WaitForTextWorker();
  EXPECT_EQ(ReasonOf(transport_.end.value_or(absl::OkStatus())), reason::kStopping);
  EXPECT_FALSE(transport_.accepted);
  call->OnClosed();
}

}  // namespace
}  // namespace bulkhead
