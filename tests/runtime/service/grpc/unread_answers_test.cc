// Answers that clients do not read, and the budget left for others.
#include "runtime/service/unread_answers.h"

#include <gmock/gmock.h>

#include <thread>

#include "runtime/service/refusal.h"
#include "tests/runtime/service/grpc/raw_client.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

constexpr int kTextBytes = 40'000;  // the letter tokenizer gives as many ids, of one byte each
constexpr char kTokenize[] = "/bulkhead.v1.Generation/Tokenize";

class UnreadAnswersTest : public ServiceFixture {
 protected:
  void Start(int unread_answer_ms) {
    TearDown();
    quotas_.answer_bytes = 64 << 10;
    quotas_.unread_answer_ms = unread_answer_ms;
    ServiceFixture::SetUp();
    MakeReady();
  }
  static v1::TokenizeRequest LongText() {
    v1::TokenizeRequest request;
    request.set_text(std::string(kTextBytes, 'z'));
    request.set_add_special_tokens(false);
    return request;
  }
  uint64_t HeldBytes() const { return Load().host().answer_bytes().now(); }
  void WaitUntilHeld(uint64_t least, uint64_t most) const {
    for (uint64_t held = HeldBytes(); held < least || held > most; held = HeldBytes()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  grpc::Status Tokenize() {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    return generation_->Tokenize(&context, LongText(), &response);
  }
};

// The waits are ended by the tests' own time limit.
TEST_F(UnreadAnswersTest, AnAnswerThatNobodyReadsEndsAfterItsTime) {
  Start(/*unread_answer_ms=*/2'000);
  SilentClient client(server_->port());
  client.Call(kTokenize, LongText().SerializeAsString());
  while (Load().host().answer_bytes().peak() < kTextBytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  WaitUntilHeld(0, 0);
  EXPECT_EQ(Load().num_errors_by_reason().at(reason::kSlowReader), 1U);
}

TEST_F(UnreadAnswersTest, AControlAnswerIsCountedAndEndsAfterItsTime) {
  Start(/*unread_answer_ms=*/2'000);
  SilentClient client(server_->port());
  client.Call("/bulkhead.v1.Control/GetModelInfo", "");
  while (Load().num_errors_by_reason().count(reason::kSlowReader) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  WaitUntilHeld(0, 0);
  EXPECT_GT(Load().host().answer_bytes().peak(), 0U);
}

TEST_F(UnreadAnswersTest, NewWorkIsRefusedByNameUntilOldUnreadAnswersMadeRoom) {
  Start(/*unread_answer_ms=*/3'600'000);
  EXPECT_TRUE(Tokenize().ok());
  WaitUntilHeld(0, 0);
  SilentClient client(server_->port());
  client.Call(kTokenize, LongText().SerializeAsString());
  WaitUntilHeld(kTextBytes, kTextBytes + 100);
  grpc::Status status = Tokenize();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "ANSWER_BUDGET");
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(status).has_value());
  while (!status.ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = Tokenize();
  }
  EXPECT_GE(Load().num_errors_by_reason().at("ANSWER_BUDGET"), 1U);
  EXPECT_EQ(Load().num_errors_by_reason().at(reason::kSlowReader), 1U);
}

TEST_F(UnreadAnswersTest, AClientThatGoesGivesItsBytesBack) {
  Start(/*unread_answer_ms=*/3'600'000);
  {
    SilentClient client(server_->port());
    client.Call(kTokenize, LongText().SerializeAsString());
    WaitUntilHeld(kTextBytes, kTextBytes + 100);
  }
  WaitUntilHeld(0, 0);
}

TEST_F(UnreadAnswersTest, AnAdmittedGenerationHoldsAllThatItMayNeedAndThenWhatItTook) {
  Start(/*unread_answer_ms=*/3'600'000);
  v1::GenerateRequest request = TextRequestOf("r");
  request.mutable_output()->set_logprobs(20);
  request.mutable_stopping()->set_max_tokens(40);
  std::thread client([&] {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    EXPECT_TRUE(generation_->Generate(&context, request, &response).ok());
    EXPECT_EQ(response.tokens_size(), 1);
  });
  const Submitted submitted = engine_.Next();
  WaitUntilHeld(40 * 20 * 10, 64 << 10);
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  client.join();
  WaitUntilHeld(0, 0);
}

TEST_F(UnreadAnswersTest, AnAnswerCountsInTheLoadUntilItIsRead) {
  Start(/*unread_answer_ms=*/3'600'000);
  {
    SilentClient client(server_->port());
    client.Call("/bulkhead.v1.Generation/Generate", TextRequestOf("r").SerializeAsString());
    const Submitted submitted = engine_.Next();
    EXPECT_EQ(Load().num_unsent_answers(), 1U);
    submitted.Finish(FinishReason::kEos, 0);
    EXPECT_EQ(Load().num_unsent_answers(), 1U);
  }
  while (Load().num_unsent_answers() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(UnreadAnswersTest, AStreamThatNobodyReadsIsCutWhenTheBudgetIsShort) {
  Start(/*unread_answer_ms=*/3'600'000);
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  const Submitted submitted = engine_.Next();
  const std::string text(4 << 10, 't');
  uint64_t sent = 0;
  for (; sent < 1000 && !engine_.WasCancelled("r"); ++sent) submitted.Send(sent, {1}, text);
  EXPECT_LT(sent, 1000U);
  EXPECT_EQ(engine_.WaitForCancel("r").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(Load().host().answer_bytes().peak(), 64U << 10);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(ReasonOf(reader->Finish()), "SLOW_READER");
}

}  // namespace
}  // namespace bulkhead
