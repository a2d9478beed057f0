#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <thread>
#include <vector>

#include "runtime/engine/scheduler_limits.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GenerationServiceTest : public ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    MakeReady();
  }

  grpc::Status Refused(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return generation_->Generate(&context, request, &response);
  }
};

TEST_F(GenerationServiceTest, GenerateReturnsTheWholeGeneration) {
  engine_.AnswerWith([](const Submitted& submitted) {
    EXPECT_EQ(submitted.request.request_id, "r1");
    EXPECT_THAT(submitted.request.prompt, ElementsAre(256, 'a', 'b'));
    GeneratedToken token;
    token.id = 'c';
    token.logprob = -0.5F;
    token.top = {{'c', -0.5F}, {'d', -1.5F}};
    OutputDelta delta;
    delta.tokens = {token};
    delta.text = "c";
    submitted.sink->OnDelta(delta);
    submitted.Send(1, {'d', 'e'}, "de");
    RequestEnd end;
    end.reason = FinishReason::kStopString;
    end.stop_string = "e";
    end.completion_tokens = 3;
    end.cached_prompt_tokens = 2;
    end.timings = {.prepare_ns = 8,
                   .queue_ns = 1,
                   .first_token_ns = 2,
                   .total_ns = 3,
                   .preemptions = 4,
                   .costs = {.collective_ns = 5, .sampling_ns = 6, .text_ns = 7}};
    submitted.sink->OnEnd(end);
  });
  v1::GenerateRequest request = TextRequestOf("r1");
  request.mutable_sampling()->set_seed(77);
  request.mutable_output()->set_prompt_token_ids(true);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = generation_->Generate(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.request_id(), "r1");
  EXPECT_EQ(response.epoch(), core_->state.epoch());
  EXPECT_EQ(response.text(), "cde");
  EXPECT_EQ(response.seed(), 77U);
  ASSERT_EQ(response.tokens_size(), 3);
  EXPECT_EQ(response.tokens(0).logprob(), -0.5F);
  EXPECT_EQ(response.tokens(0).top(1).id(), static_cast<uint32_t>('d'));
  EXPECT_FALSE(response.tokens(1).has_logprob());
  EXPECT_THAT(response.prompt_token_ids().ids(), ElementsAre(256, 'a', 'b'));
  EXPECT_EQ(response.finished().reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(response.finished().stop_string(), "e");
  EXPECT_EQ(response.finished().usage().prompt_tokens(), 3U);
  EXPECT_EQ(response.finished().usage().completion_tokens(), 3U);
  EXPECT_EQ(response.finished().usage().cached_prompt_tokens(), 2U);
  EXPECT_EQ(response.finished().timings().prepare_ns(), 8U);
  EXPECT_EQ(response.finished().timings().queue_ns(), 1U);
  EXPECT_EQ(response.finished().timings().first_token_ns(), 2U);
  EXPECT_EQ(response.finished().timings().total_ns(), 3U);
  EXPECT_EQ(response.finished().timings().preemptions(), 4U);
  EXPECT_EQ(response.finished().timings().collective_ns(), 5U);
  EXPECT_EQ(response.finished().timings().sampling_ns(), 6U);
  EXPECT_EQ(response.finished().timings().detokenise_ns(), 7U);
}

TEST_F(GenerationServiceTest, SaltOfOneTo128BytesReachesTheEngine) {
  std::string salt;
  engine_.AnswerWith([&](const Submitted& submitted) {
    salt = submitted.request.cache_salt;
    submitted.Finish(FinishReason::kEos, 0);
  });
  for (const size_t bytes : {1, 128, 129, 0}) {
    v1::GenerateRequest request = TextRequestOf("r");
    request.set_cache_salt(std::string(bytes, 's'));
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = generation_->Generate(&context, request, &response);
    const bool fits = bytes >= 1 && bytes <= 128;
    EXPECT_EQ(status.error_code(),
              fits ? grpc::StatusCode::OK : grpc::StatusCode::INVALID_ARGUMENT);
    if (fits) {
      EXPECT_EQ(salt.size(), bytes);
    } else {
      EXPECT_THAT(status.error_message(), HasSubstr("cache_salt"));
    }
  }
}

TEST_F(GenerationServiceTest, AServersOwnIdsAreUnique) {
  engine_.AnswerWith([](const Submitted& submitted) { submitted.Finish(FinishReason::kEos, 0); });
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    ASSERT_TRUE(generation_->Generate(&context, TextRequestOf(""), &response).ok());
    EXPECT_FALSE(response.request_id().empty());
    ids.insert(response.request_id());
  }
  EXPECT_EQ(ids.size(), 3U);
}

TEST_F(GenerationServiceTest, TheClientsRequestIdHeaderComesBack) {
  engine_.AnswerWith([](const Submitted& submitted) { submitted.Finish(FinishReason::kEos, 0); });
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "trace-5");
  v1::GenerateResponse response;
  ASSERT_TRUE(generation_->Generate(&context, TextRequestOf("r"), &response).ok());
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find("x-request-id");
  ASSERT_NE(found, metadata.end());
  EXPECT_EQ(std::string(found->second.data(), found->second.size()), "trace-5");
}

TEST_F(GenerationServiceTest, ABadRequestNamesItsField) {
  v1::GenerateRequest request = TextRequestOf("r");
  request.mutable_sampling()->set_temperature(-1);
  const grpc::Status status = Refused(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "INVALID_VALUE");
  const auto bad = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.temperature");
}

TEST_F(GenerationServiceTest, ARequestThatDoesNotParseSaysSo) {
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text("\xff");  // a C++ client may send it, but the server's parser refuses it
  const grpc::Status unary = Refused(request);
  EXPECT_EQ(unary.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(unary), "MALFORMED_REQUEST");
  EXPECT_THAT(unary.error_message(), HasSubstr("not valid UTF-8"));

  grpc::ClientContext context;
  const auto stream = generation_->GenerateStream(&context, request);
  v1::GenerateEvent event;
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_EQ(ReasonOf(stream->Finish()), "MALFORMED_REQUEST");
}

TEST_F(GenerationServiceTest, AMethodThatDoesNotExistStaysUnimplemented) {
  grpc::internal::RpcMethod method("/bulkhead.v1.Generation/Guess",
                                   grpc::internal::RpcMethod::NORMAL_RPC, channel_);
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall(channel_.get(), method, &context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GenerationServiceTest, APromptThatIsTooLongSaysTheNumbers) {
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text(std::string(kTestModelLen, 'a'));
  const grpc::Status status = Refused(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto error_info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(error_info.has_value());
  EXPECT_EQ(error_info->reason(), "PROMPT_TOO_LONG");
  EXPECT_EQ(error_info->domain(), "bulkhead");
  EXPECT_EQ(error_info->metadata().at("prompt_tokens"), "65");
  EXPECT_EQ(error_info->metadata().at("max_model_len"), "64");
}

TEST_F(GenerationServiceTest, AFullQueueSaysWhenToComeBack) {
  SchedulerLimits limits;
  limits.max_num_seqs = 4;
  limits.max_num_queued_reqs = 7;
  engine_.RefuseWith(CheckQueueHasRoom(limits, {.num_running = 4, .num_waiting = 7}));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = generation_->Generate(&context, TextRequestOf("r"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto error_info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(error_info.has_value());
  EXPECT_EQ(error_info->reason(), "QUEUE_FULL");
  EXPECT_EQ(error_info->metadata().at("running"), "4");
  EXPECT_EQ(error_info->metadata().at("waiting"), "7");
  EXPECT_EQ(error_info->metadata().at("limit"), "7");
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry.has_value());
  EXPECT_GT(retry->retry_delay().seconds(), 0);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
}

TEST_F(GenerationServiceTest, EveryRefusalOfTheEngineHasItsReason) {
  const std::vector<std::pair<absl::Status, std::string>> rows = {
      {absl::OutOfRangeError("never fits"), "KV_BUDGET"},
      {absl::AlreadyExistsError("again"), "DUPLICATE_REQUEST_ID"},
      {absl::UnavailableError("rank 1 was lost"), "RANK_LOST"},
      {absl::InternalError("broken"), "INTERNAL"},
      {WithReason(absl::UnavailableError("gone"), "RANK_LOST"), "RANK_LOST"},
      {WithReason(absl::UnavailableError("soon over"), "DRAINING"), "DRAINING"},
  };
  for (const auto& [refusal, reason] : rows) {
    engine_.RefuseWith(refusal);
    const grpc::Status status = Refused(TextRequestOf("r"));
    EXPECT_EQ(status.error_code(), static_cast<grpc::StatusCode>(refusal.code()));
    EXPECT_EQ(ReasonOf(status), reason);
  }
}

TEST_F(GenerationServiceTest, ARequestThatNeverFitsSaysHowManyBlocksItNeeds) {
  SchedulerLimits limits;
  limits.max_model_len = 1000;
  limits.block_tokens = 10;
  limits.num_kv_blocks = 8;
  engine_.RefuseWith(CheckRequestFits(limits, /*prompt_tokens=*/100, 0, /*max_tokens=*/20));
  const auto error_info = DetailOf<google::rpc::ErrorInfo>(Refused(TextRequestOf("r")));
  ASSERT_TRUE(error_info.has_value());
  EXPECT_EQ(error_info->metadata().at("needed_blocks"), "12");
  EXPECT_EQ(error_info->metadata().at("rank_min_blocks"), "8");
}

TEST_F(GenerationServiceTest, ABugOfOursNamesTheRequestAndNoMoreThanTheCode) {
  engine_.RefuseWith(absl::UnknownError("odd"));
  const grpc::Status status = Refused(TextRequestOf("r9"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("r9"));
}

TEST_F(GenerationServiceTest, AnIdInFlightIsTakenUntilItsGenerationEnds) {
  grpc::ClientContext first_context;
  auto first = generation_->GenerateStream(&first_context, TextRequestOf("same"));
  const Submitted submitted = engine_.Next();
  const grpc::Status status = Refused(TextRequestOf("same"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(status), "DUPLICATE_REQUEST_ID");
  submitted.Finish(FinishReason::kEos, 0);
  v1::GenerateEvent event;
  while (first->Read(&event)) {
  }
  ASSERT_TRUE(first->Finish().ok());
  engine_.AnswerWith([](const Submitted& again) { again.Finish(FinishReason::kEos, 0); });
  EXPECT_TRUE(Refused(TextRequestOf("same")).ok());
}

TEST_F(GenerationServiceTest, ARefusedRequestFreesItsId) {
  engine_.RefuseWith(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(Refused(TextRequestOf("r")).ok());
  engine_.AnswerWith([](const Submitted& again) { again.Finish(FinishReason::kEos, 0); });
  EXPECT_TRUE(Refused(TextRequestOf("r")).ok());
}

TEST_F(GenerationServiceTest, AUnaryCallThatIsCancelledStopsTheEngine) {
  grpc::ClientContext context;
  grpc::Status status;
  std::thread client([&] {
    v1::GenerateResponse response;
    status = generation_->Generate(&context, TextRequestOf("r"), &response);
  });
  engine_.Next();
  context.TryCancel();
  EXPECT_EQ(engine_.WaitForCancel("r").code(), absl::StatusCode::kCancelled);
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GenerationServiceTest, ALongTextIsTokenisedElsewhereAndServedAlike) {
  ServingParts parts = Parts();
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text(std::string(100000, 'a'));
  const grpc::Status status = Refused(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("100001"));
}

TEST_F(GenerationServiceTest, TokenizeAndDetokenizeAreEachOthersInverse) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hey");
  v1::TokenizeResponse ids;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(generation_->Tokenize(&context, tokenize, &ids).ok());
  }
  EXPECT_THAT(ids.token_ids().ids(), ElementsAre(256, 'h', 'e', 'y'));
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(generation_->Detokenize(&context, detokenize, &text).ok());
  }
  EXPECT_EQ(text.text(), "hey");
  detokenize.set_skip_special_tokens(false);
  {
    grpc::ClientContext context;
    ASSERT_TRUE(generation_->Detokenize(&context, detokenize, &text).ok());
  }
  EXPECT_EQ(text.text(), "<s>hey");
  detokenize.mutable_token_ids()->add_ids(257);
  grpc::ClientContext context;
  const grpc::Status status = generation_->Detokenize(&context, detokenize, &text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("token_ids[4]"));
}

TEST_F(GenerationServiceTest, LongTextsAndIdListsAreConvertedOnTheWorker) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text(std::string(200000, 'z'));
  tokenize.set_add_special_tokens(false);
  v1::TokenizeResponse ids;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(generation_->Tokenize(&context, tokenize, &ids).ok());
  }
  EXPECT_EQ(ids.token_ids().ids_size(), 200000);
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  ASSERT_TRUE(generation_->Detokenize(&context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), tokenize.text());
}

class WithoutTokenizerTest : public ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    ServingParts parts = Parts();
    parts.rules.tokenizer = nullptr;
    core_->SetReady(parts);
  }
};

TEST_F(WithoutTokenizerTest, TextIsRefusedByName) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  grpc::Status status = generation_->Generate(&context, TextRequestOf("r"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "TEXT_NOT_SUPPORTED");
  grpc::ClientContext tokenize_context;
  v1::TokenizeResponse ids;
  status = generation_->Tokenize(&tokenize_context, v1::TokenizeRequest(), &ids);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "TEXT_NOT_SUPPORTED");
}

}  // namespace
}  // namespace bulkhead
