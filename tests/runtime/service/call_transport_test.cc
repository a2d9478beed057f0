// Calls on a transport that is not gRPC's: what another front end has to bring.
#include "runtime/service/call_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "runtime/service/generate_call.h"
#include "runtime/service/local_call.h"
#include "runtime/service/refusal.h"
#include "runtime/service/tokenize.h"
#include "tests/runtime/service/fake_engine.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

std::string Joined(const MessagePieces& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

// A front end that has parsed its client's message already.
class ParsedRequest final : public CallRequest {
 public:
  explicit ParsedRequest(const google::protobuf::Message& message)
      : bytes_(message.SerializeAsString()) {}
  size_t bytes() const override { return bytes_.size(); }
  absl::Status Parse(google::protobuf::Message& message) override {
    message.ParseFromString(bytes_);
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
};

// Keeps what it is told to send. The test says when a write is done, and when the call closes.
class FakeTransport final : public CallTransport {
 public:
  void OnAccepted() override { accepted = true; }
  void Write(MessagePieces message) override { written.push_back(Joined(message)); }
  void SetTrailer(const std::string& key, const std::string& value) override {
    trailers[key] = value;
  }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override {
    EXPECT_FALSE(end.has_value()) << "ended twice";
    end = status;
    if (last.has_value()) written.push_back(Joined(*last));
  }
  std::function<bool()> Dropper() override {
    return [this] { return ++drops > drops_refused; };
  }

  bool accepted = false;
  std::atomic<int> drops{0};
  int drops_refused = 0;
  std::vector<std::string> written;
  std::map<std::string, std::string> trailers;
  std::optional<absl::Status> end;
};

class CallTransportTest : public testing::Test {
 protected:
  CallTransportTest() {
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.rules.tokenizer = &tokenizer_;
    parts.rules.served_model_names = {"letters"};
    parts.rules.vocab_size = LetterTokenizer::kVocabSize;
    parts.rules.max_model_len = kTestModelLen;
    core_.SetReady(std::move(parts));
  }
  template <typename Kind>
  std::shared_ptr<Kind> Start(const google::protobuf::Message& request) {
    auto call = std::make_shared<Kind>(&core_, &transport_);
    call->Start(std::make_unique<ParsedRequest>(request));
    return call;
  }
  static v1::GenerateRequest TextRequest() {
    v1::GenerateRequest request;
    request.set_request_id("r");
    request.set_text("ab");
    return request;
  }
  v1::GenerateEvent Written(size_t index) const {
    v1::GenerateEvent event;
    EXPECT_TRUE(event.ParseFromString(transport_.written.at(index)));
    return event;
  }

  LetterTokenizer tokenizer_;
  FakeEngine engine_;
  FakeTransport transport_;
  ServiceCore core_{HostQuotas()};
};

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

TEST_F(CallTransportTest, AMessageWithAFormWaitsForTheTextWorkerWithAllOfItsBytes) {
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

TEST_F(CallTransportTest, FewResumedAnswersWithAFormWaitForTheTextWorker) {
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
  longers_call->Start(std::make_unique<ParsedRequest>(longer));
  ASSERT_TRUE(core_.text_worker
                  .Post(most - TextWorker::kResumedFormBytes / 2,
                        [&end_on] { end_on.WaitForNotification(); })
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
  call->Start(std::make_unique<ParsedRequest>(request));
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
