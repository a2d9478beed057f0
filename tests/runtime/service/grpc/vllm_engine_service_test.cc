// vllm.grpc.engine.VllmEngine over gRPC, with an engine that the test controls.
#include "runtime/service/grpc/vllm_engine_service.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/service/grpc/tokenizer_call.h"
#include "runtime/service/grpc/vllm_engine_messages.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Answered {
  std::vector<vllm_api::GenerateStreamChunk> chunks;
  std::vector<vllm_api::GenerateComplete> completes;
  grpc::Status status;
};

class VllmEngineServiceTest : public ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    stub_ = vllm_api::VllmEngine::NewStub(channel_);
  }
  void TearDown() override {
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (core_->host.open_calls.now() > 0 && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(core_->host.open_calls.now(), 0);
    ServiceFixture::TearDown();
    EXPECT_EQ(core_->host.answer_bytes.now(), 0);
  }
  static vllm_api::GenerateRequest RequestOf(const std::string& id, bool stream, uint32_t n) {
    vllm_api::GenerateRequest request;
    request.set_request_id(id);
    request.set_text("ab");
    request.set_stream(stream);
    request.mutable_sampling_params()->set_n(n);
    request.mutable_sampling_params()->set_seed(40);
    return request;
  }
  Answered Generate(const vllm_api::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    Answered out;
    vllm_api::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_chunk()) {
        out.chunks.push_back(response.chunk());
      } else {
        out.completes.push_back(response.complete());
      }
    }
    out.status = reader->Finish();
    return out;
  }
  template <typename Response, typename Request>
  grpc::Status Ask(grpc::Status (vllm_api::VllmEngine::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                   const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  std::unique_ptr<vllm_api::VllmEngine::Stub> stub_;
};

TEST_F(VllmEngineServiceTest, AStreamHasChunksAndThenEverything) {
  engine_.AnswerWith([](const Submitted& s) {
    s.Send(0, {'c', 'd'}, "");
    s.Finish(FinishReason::kEos, 2);
  });
  MakeReady();
  const Answered answered = Generate(RequestOf("r", true, 0));
  ASSERT_TRUE(answered.status.ok()) << answered.status.error_message();
  std::vector<uint32_t> ids;
  for (const auto& chunk : answered.chunks) {
    ids.insert(ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    EXPECT_EQ(chunk.completion_tokens(), ids.size());
    EXPECT_EQ(chunk.prompt_tokens(), 3);
  }
  EXPECT_THAT(ids, ElementsAre('c', 'd'));
  ASSERT_EQ(answered.completes.size(), 1U);
  EXPECT_THAT(answered.completes[0].output_ids(), ElementsAre('c', 'd'));
  EXPECT_EQ(answered.completes[0].finish_reason(), "stop");
}

// The guard counts a request's bytes until then.
TEST_F(VllmEngineServiceTest, AnAcceptedCallBeginsItsAnswerBeforeItsFirstToken) {
  MakeReady();
  for (const uint32_t n : {1U, 2U}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto reader = stub_->Generate(&context, RequestOf("r", /*stream=*/false, n));
    std::vector<Submitted> submitted;
    for (uint32_t i = 0; i < n; ++i) submitted.push_back(engine_.Next());
    reader->WaitForInitialMetadata();
    EXPECT_EQ(core_->host.request_bytes.now(), 0);
    for (const Submitted& choice : submitted) choice.Finish(FinishReason::kEos, 0);
    vllm_api::GenerateResponse response;
    for (uint32_t i = 0; i < n; ++i) EXPECT_TRUE(reader->Read(&response));
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(VllmEngineServiceTest, ChoicesAreRequestsWithTheirOwnSeedsAndIndices) {
  engine_.AnswerWith([](const Submitted& s) {
    s.Send(0, {static_cast<TokenId>(s.request.sampling.seed)}, "");
    s.Finish(FinishReason::kMaxTokens, 1);
  });
  MakeReady();
  for (const bool stream : {false, true}) {
    const Answered answered = Generate(RequestOf("r", stream, 3));
    ASSERT_TRUE(answered.status.ok()) << answered.status.error_message();
    EXPECT_EQ(answered.chunks.size(), stream ? 3U : 0U);
    ASSERT_EQ(answered.completes.size(), 3U);
    for (const auto& complete : answered.completes) {
      EXPECT_THAT(complete.output_ids(), ElementsAre(40 + complete.index()));
      EXPECT_EQ(complete.finish_reason(), "length");
    }
  }
}

TEST_F(VllmEngineServiceTest, AChoiceThatFailsEndsTheCallAndTheOthers) {
  MakeReady();
  for (const bool stream : {false, true}) {
    auto answered = std::async([&] { return Generate(RequestOf("r", stream, 3)); });
    engine_.Next().Send(0, {'c'}, "");
    engine_.Next().Fail(absl::InternalError("broken"));
    const Answered got = answered.get();
    EXPECT_EQ(got.status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_TRUE(got.completes.empty());
    EXPECT_TRUE(engine_.WasCancelled("r#0"));
    while (!core_->calls.RunningIds().empty()) absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST_F(VllmEngineServiceTest, AChoiceThatIsRefusedKeepsTheRestFromTheEngine) {
  MakeReady();
  engine_.RefuseWith(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Generate(RequestOf("r", true, 3)).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(core_->calls.RunningIds().empty());
}

TEST_F(VllmEngineServiceTest, AbortEndsEveryChoiceOfARequest) {
  MakeReady();
  for (const uint32_t n : {1U, 2U}) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, RequestOf("r", true, n));
    for (uint32_t i = 0; i < n; ++i) engine_.Next();
    vllm_api::AbortRequest abort;
    abort.add_request_ids("r");
    abort.add_request_ids("unknown");
    vllm_api::AbortResponse aborted;
    EXPECT_TRUE(Ask(&vllm_api::VllmEngine::Stub::Abort, abort, &aborted).ok());
    vllm_api::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    const grpc::Status status = reader->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_EQ(ReasonOf(status), "ABORTED");
  }
}

TEST_F(VllmEngineServiceTest, AClientThatLeavesCancelsEveryChoice) {
  MakeReady();
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, RequestOf("r", true, 2));
  engine_.Next().Send(0, {'c'}, "");
  engine_.Next();
  vllm_api::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_FALSE(engine_.WaitForCancel("r#0").ok());
  EXPECT_FALSE(engine_.WaitForCancel("r#1").ok());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(VllmEngineServiceTest, AClientMayLeaveWhileTheEngineEnds) {
  MakeReady();
  engine_.AnswerWith([](const Submitted& s) {
    s.Send(0, {'c', 'd'}, "");
    s.Finish(FinishReason::kEos, 2);
  });
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, RequestOf(absl::StrCat("r", i), true, 1 + i % 2));
    vllm_api::GenerateResponse response;
    if (i % 3 > 0) reader->Read(&response);
    context.TryCancel();
    reader->Finish();
  }
}

TEST_F(VllmEngineServiceTest, AnAnswerThatDoesNotFitTheBudgetIsRefusedBeforeItsFirstToken) {
  server_->Shutdown(absl::ZeroDuration());
  quotas_.answer_bytes = 1024;
  SetUp();
  MakeReady();
  const Answered answered = Generate(RequestOf("r", true, 1));
  EXPECT_EQ(ReasonOf(answered.status), "ANSWER_BUDGET");
  EXPECT_TRUE(answered.chunks.empty());
}

TEST_F(VllmEngineServiceTest, HealthFollowsTheServersLife) {
  vllm_api::HealthCheckResponse response;
  EXPECT_TRUE(Ask(&vllm_api::VllmEngine::Stub::HealthCheck, {}, &response).ok());
  EXPECT_FALSE(response.healthy());
  EXPECT_THAT(response.message(), HasSubstr("starting"));
  MakeReady();
  EXPECT_TRUE(Ask(&vllm_api::VllmEngine::Stub::HealthCheck, {}, &response).ok());
  EXPECT_TRUE(response.healthy());
  core_->state.SetDraining();
  EXPECT_TRUE(Ask(&vllm_api::VllmEngine::Stub::HealthCheck, {}, &response).ok());
  EXPECT_FALSE(response.healthy());
}

TEST_F(VllmEngineServiceTest, InformationIsThatOfTheServer) {
  ServingParts parts = Parts();
  parts.rules.defaults.top_p = 0.5;
  parts.rules.defaults.do_sample = false;
  parts.model_info.set_config_json(
      R"({"model_type": "llama", "bos_token_id": 2, "pad_token_id": null})");
  parts.model_info.add_eos_token_ids(1);
  core_->SetReady(std::move(parts));
  vllm_api::GetModelInfoResponse model;
  ASSERT_TRUE(Ask(&vllm_api::VllmEngine::Stub::GetModelInfo, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "letters");
  EXPECT_EQ(model.max_context_length(), kTestModelLen);
  EXPECT_EQ(model.model_type(), "llama");
  EXPECT_EQ(model.bos_token_id(), 2);
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(1));
  EXPECT_EQ(model.default_sampling_params_json(), R"({"temperature":0.0,"top_p":0.5})");
  v1::LoadInfo load;
  load.set_num_requests_running(2);
  load.set_num_requests_waiting(3);
  load.set_num_kv_blocks(10);
  load.set_num_kv_blocks_used(4);
  engine_.SetLoad(load);
  vllm_api::GetServerInfoResponse server;
  ASSERT_TRUE(Ask(&vllm_api::VllmEngine::Stub::GetServerInfo, {}, &server).ok());
  EXPECT_EQ(server.active_requests(), 5);
  EXPECT_EQ(server.max_num_seqs(), 4);
  vllm_api::GetLoadsResponse loads;
  ASSERT_TRUE(Ask(&vllm_api::VllmEngine::Stub::GetLoads, {}, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.loads(0).num_used_tokens(), 64);
  EXPECT_EQ(loads.loads(0).token_usage(), 0.4);
  EXPECT_EQ(loads.loads(0).utilization(), 0.5);
  vllm_api::GetLoadsRequest other;
  other.set_dp_rank(1);
  EXPECT_EQ(Ask(&vllm_api::VllmEngine::Stub::GetLoads, other, &loads).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(VllmEngineServiceTest, TheTokenizerComesInChunksWithItsHashAtTheEnd) {
  for (const size_t bytes : {size_t{1}, kTokenizerChunkBytes, 2 * kTokenizerChunkBytes + 1}) {
    ServiceFixture::TearDown();
    SetUp();
    ServingParts parts = Parts();
    auto archive = std::make_shared<TokenizerArchive>();
    for (size_t i = 0; i < bytes; ++i) archive->zip += static_cast<char>(i * i);
    archive->sha256 = "hash";
    parts.tokenizer_archive = std::shared_ptr<const TokenizerArchive>(archive);
    core_->SetReady(std::move(parts));
    grpc::ClientContext context;
    const auto reader = stub_->GetTokenizer(&context, {});
    vllm_api::GetTokenizerChunk chunk;
    std::string all, hash;
    while (reader->Read(&chunk)) {
      EXPECT_LE(chunk.data().size(), kTokenizerChunkBytes);
      EXPECT_TRUE(hash.empty());
      all += chunk.data();
      hash = chunk.sha256();
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_TRUE(all == archive->zip);
    EXPECT_EQ(hash, "hash");
  }
}

TEST_F(VllmEngineServiceTest, WhatIsNotServedSaysSo) {
  MakeReady();
  vllm_api::GetTokenizerChunk chunk;
  grpc::ClientContext context;
  const auto tokenizer = stub_->GetTokenizer(&context, {});
  EXPECT_FALSE(tokenizer->Read(&chunk));
  EXPECT_EQ(tokenizer->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  vllm_api::Unserved unserved;
  using Stub = vllm_api::VllmEngine::Stub;
  for (const auto method : {&Stub::FlushCache, &Stub::StartProfile, &Stub::StopProfile}) {
    const grpc::Status status = Ask(method, {}, &unserved);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_FALSE(status.error_message().empty());
  }
  vllm_api::EmbedRequest embed;
  embed.mutable_tokenized()->add_input_ids(1);
  vllm_api::EmbedResponse embedding;
  const grpc::Status none = Ask(&Stub::Embed, embed, &embedding);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(none.error_message(), HasSubstr("the model gives no embeddings"));
  grpc::ClientContext events_context;
  const auto events = stub_->SubscribeKvEvents(&events_context, {});
  vllm_api::KvEventBatch batch;
  EXPECT_FALSE(events->Read(&batch));
  const grpc::Status no_events = events->Finish();
  EXPECT_EQ(no_events.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(no_events.error_message(), HasSubstr("--enable-kv-cache-events"));
}

}  // namespace
}  // namespace bulkhead
