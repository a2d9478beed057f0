// The prompt's log probabilities: from rows of logits to what clients read.
#include "runtime/service/prompt_logprobs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

constexpr int kVocab = 5;

// Row i prefers id i % kVocab, then the ids behind it, in a circle.
std::vector<float> RowsOf(int64_t first, int64_t rows) {
  std::vector<float> logits;
  for (int64_t row = first; row < first + rows; ++row) {
    for (int id = 0; id < kVocab; ++id) {
      logits.push_back(static_cast<float>(-((id - row % kVocab + kVocab) % kVocab)));
    }
  }
  return logits;
}

double LogprobOfRank(int rank) {
  double sum = 0;
  for (int i = 0; i < kVocab; ++i) sum += std::exp(-i);
  return 1 - rank - std::log(sum);
}

v1::PromptLogprobs Parsed(PromptLogprobs& logprobs) {
  v1::PromptLogprobs all;
  for (const std::string& piece : logprobs.TakePieces()) EXPECT_TRUE(all.MergeFromString(piece));
  return all;
}

TEST(PromptLogprobsTest, TokensAfterTheFirstHaveLogprobRankAndTop) {
  PromptLogprobs logprobs({3, 0, 4, 2}, 2, v1::PromptLogprobs::kTokensFieldNumber);
  ASSERT_TRUE(logprobs.OnRows(0, 2, kVocab, RowsOf(0, 2).data()).ok());
  ASSERT_TRUE(logprobs.OnRows(0, 3, kVocab, RowsOf(0, 3).data()).ok()) << "after a preemption";
  ASSERT_TRUE(logprobs.OnRows(3, 1, kVocab, RowsOf(3, 1).data()).ok());
  const v1::PromptLogprobs all = Parsed(logprobs);
  ASSERT_EQ(all.tokens_size(), 4);
  EXPECT_EQ(all.tokens(0).id(), 3);
  EXPECT_FALSE(all.tokens(0).has_logprob() || all.tokens(0).has_rank());
  const std::vector<uint32_t> ids = {3, 0, 4, 2}, ranks = {0, 1, 4, 1};
  for (int i = 1; i < 4; ++i) {
    const v1::Token& token = all.tokens(i);
    EXPECT_EQ(token.id(), ids[i]);
    EXPECT_EQ(token.rank(), ranks[i]);
    EXPECT_NEAR(token.logprob(), LogprobOfRank(static_cast<int>(ranks[i])), 1e-6);
    ASSERT_EQ(token.top_size(), 2);
    EXPECT_EQ(token.top(0).id(), (i - 1) % kVocab);
    EXPECT_NEAR(token.top(1).logprob(), LogprobOfRank(2), 1e-6);
  }
}

TEST(PromptLogprobsTest, HoldsNoMoreThanItSays) {
  constexpr int kTokens = 2000;
  std::vector<TokenId> prompt(kTokens);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (TokenId& id : prompt) id %= kVocab;
  PromptLogprobs logprobs(prompt, kVocab, 1);
  ASSERT_TRUE(logprobs.OnRows(0, kTokens, kVocab, RowsOf(0, kTokens).data()).ok());
  int64_t bytes = 0;
  const std::vector<std::string> pieces = logprobs.TakePieces();
  EXPECT_GT(pieces.size(), 1);
  for (const std::string& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  EXPECT_LE(bytes, PromptLogprobs::MaxBytes(kVocab, kTokens, kVocab));
  EXPECT_GE(bytes, PromptLogprobs::MaxBytes(kVocab, kTokens, kVocab) * 3 / 4);
}

TEST(PromptLogprobsTest, LogitsThatAreNotFiniteFailTheRequest) {
  PromptLogprobs logprobs({1, 2}, 0, 1);
  std::vector<float> rows = RowsOf(0, 1);
  rows[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(logprobs.OnRows(0, 1, kVocab, rows.data()).code(), absl::StatusCode::kInternal);
}

class PromptLogprobsCallTest : public ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    MakeReady();
    engine_.AnswerWith([](const Submitted& submitted) {
      ASSERT_NE(submitted.request.prompt_logits, nullptr);
      const std::vector<float> row(257, 0.0F);
      for (int position = 0; position < 3; ++position) {
        ASSERT_TRUE(submitted.request.prompt_logits->OnRows(position, 1, 257, row.data()).ok());
      }
      const bool generates = submitted.request.stopping.max_tokens > 0;
      if (generates) submitted.Send(0, {'c'}, "c");
      submitted.Finish(FinishReason::kMaxTokens, generates ? 1 : 0);
    });
    request_ = TextRequestOf("r");
    request_.mutable_output()->set_prompt_logprobs(1);
  }

  void ExpectPrompt(const google::protobuf::RepeatedPtrField<v1::Token>& tokens) {
    ASSERT_EQ(tokens.size(), 3);
    EXPECT_EQ(tokens[0].id(), 256);
    EXPECT_EQ(tokens[1].id(), 'a');
    EXPECT_EQ(tokens[1].rank(), 'a' + 1U);
    EXPECT_NEAR(tokens[2].logprob(), -std::log(257.0), 1e-5);
    EXPECT_EQ(tokens[2].top(0).id(), 0);
  }

  v1::GenerateRequest request_;
};

TEST_F(PromptLogprobsCallTest, AreInTheAnswer) {
  for (const int max_tokens : {0, 1}) {
    request_.mutable_stopping()->set_max_tokens(max_tokens);
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = generation_->Generate(&context, request_, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectPrompt(response.prompt_logprobs());
    EXPECT_EQ(response.tokens_size(), max_tokens);
  }
}

TEST_F(PromptLogprobsCallTest, ComeBehindAcceptedAndBeforeTheFirstDelta) {
  for (const int max_tokens : {0, 1}) {
    request_.mutable_stopping()->set_max_tokens(max_tokens);
    grpc::ClientContext context;
    const auto reader = generation_->GenerateStream(&context, request_);
    std::vector<int> order;
    v1::PromptLogprobs all;
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      order.push_back(event.event_case());
      all.MergeFrom(event.prompt_logprobs());
    }
    EXPECT_TRUE(reader->Finish().ok());
    ExpectPrompt(all.tokens());
    if (max_tokens == 0) {
      EXPECT_THAT(order,
                  ElementsAre(v1::GenerateEvent::kAccepted, v1::GenerateEvent::kPromptLogprobs,
                              v1::GenerateEvent::kFinished));
    } else {
      EXPECT_THAT(order,
                  ElementsAre(v1::GenerateEvent::kAccepted, v1::GenerateEvent::kPromptLogprobs,
                              v1::GenerateEvent::kDelta, v1::GenerateEvent::kFinished));
    }
  }
}

}  // namespace
}  // namespace bulkhead
