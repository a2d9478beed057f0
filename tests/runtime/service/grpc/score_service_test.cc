#include <gmock/gmock.h>

#include <cmath>

#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

class ScoreServiceTest : public ServiceFixture {
 protected:
  grpc::Status Score(const v1::ScoreRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return generation_->Score(&context, request, &response_);
  }
  // All rows of logits are uniform: each token has probability 1/2.
  void AnswerFlat() {
    engine_.AnswerWith([](const Submitted& submitted) {
      const std::vector<float> rows(2 * submitted.request.prompt.size());
      ASSERT_TRUE(
          submitted.request.prompt_logits
              ->OnRows(0, static_cast<int64_t>(submitted.request.prompt.size()), 2, rows.data())
              .ok());
      submitted.Finish(FinishReason::kMaxTokens, 0);
    });
  }
  static v1::ScoreRequest Ids(int count) {
    v1::ScoreRequest request;
    for (int i = 0; i < count; ++i) request.mutable_token_ids()->add_ids(i % 2);
    return request;
  }
  v1::ScoreResponse response_;
};

TEST_F(ScoreServiceTest, GivesEveryTokensLogProbabilityTheirSumAndThePerplexity) {
  MakeReady();
  AnswerFlat();
  ASSERT_TRUE(Score(Ids(5)).ok());
  EXPECT_EQ(response_.token_ids().ids_size(), 5);
  ASSERT_EQ(response_.token_logprobs_size(), 4);
  EXPECT_FLOAT_EQ(response_.token_logprobs(3), -std::log(2.0F));
  EXPECT_NEAR(response_.nll(), 4 * std::log(2.0), 1e-7);
  EXPECT_NEAR(response_.perplexity(), 2, 1e-7);
  EXPECT_FALSE(response_.request_id().empty());
  EXPECT_EQ(response_.epoch(), core_->state.epoch());
}

TEST_F(ScoreServiceTest, LogProbabilitiesCanBeLeftOut) {
  MakeReady();
  AnswerFlat();
  v1::ScoreRequest request = Ids(5);
  request.set_token_logprobs(false);
  ASSERT_TRUE(Score(request).ok());
  EXPECT_EQ(response_.token_logprobs_size(), 0);
  EXPECT_NEAR(response_.perplexity(), 2, 1e-7);
}

TEST_F(ScoreServiceTest, TextMayHaveMaxModelLenTokensAndNoMore) {
  MakeReady();
  AnswerFlat();
  EXPECT_TRUE(Score(Ids(kTestModelLen)).ok());
  const grpc::Status refused = Score(Ids(kTestModelLen + 1));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(refused), "PROMPT_TOO_LONG");
}

TEST_F(ScoreServiceTest, AsksTheEngineForTheWholePromptAndNothingMore) {
  MakeReady();
  v1::ScoreRequest request;
  request.set_request_id("one");
  request.set_text("ab");
  request.set_priority(3);
  std::thread call([&] { EXPECT_TRUE(Score(request).ok()); });
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.request_id, "one");
  EXPECT_EQ(submitted.request.priority, 3);
  EXPECT_EQ(submitted.request.stopping.max_tokens, 0);
  EXPECT_NE(submitted.request.prompt_logits, nullptr);
  submitted.Finish(FinishReason::kMaxTokens, 0);
  call.join();
}

TEST_F(ScoreServiceTest, WrongRequestsAreRefusedAndCounted) {
  EXPECT_EQ(ReasonOf(Score(Ids(2))), "STARTING");
  MakeReady();
  EXPECT_EQ(Score(v1::ScoreRequest()).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::ScoreRequest other = Ids(2);
  other.set_model("numbers");
  EXPECT_EQ(ReasonOf(Score(other)), "MODEL_NOT_FOUND");
  engine_.RefuseWith(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(ReasonOf(Score(Ids(2))), "QUEUE_FULL");
  grpc::ClientContext context;
  v1::LoadInfo load;
  ASSERT_TRUE(control_->GetLoad(&context, {}, &load).ok());
  const std::map<std::string, uint64_t> errors(load.num_errors_by_reason().begin(),
                                               load.num_errors_by_reason().end());
  EXPECT_EQ(errors,
            (std::map<std::string, uint64_t>{
                {"INVALID_VALUE", 1}, {"MODEL_NOT_FOUND", 1}, {"QUEUE_FULL", 1}, {"STARTING", 1}}));
}

}  // namespace
}  // namespace bulkhead
