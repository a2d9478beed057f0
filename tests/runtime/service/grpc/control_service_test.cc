#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

class ControlServiceTest : public ServiceFixture {
 protected:
  v1::AbortResponse Abort(const v1::AbortRequest& request) {
    grpc::ClientContext context;
    v1::AbortResponse response;
    EXPECT_TRUE(control_->Abort(&context, request, &response).ok());
    return response;
  }
};

TEST_F(ControlServiceTest, QuestionsAreAnsweredOnceReady) {
  MakeReady();
  v1::LoadInfo load;
  load.set_num_requests_running(1);
  load.set_num_requests_waiting(2);
  load.set_num_kv_blocks(3);
  load.set_num_kv_blocks_used(4);
  load.set_num_waiting_tokens(5);
  load.set_prompt_tokens_total(6);
  load.set_generation_tokens_total(7);
  load.set_num_preemptions_total(8);
  load.set_device_allocations_after_ready(9);
  load.set_num_kv_blocks_cached(10);
  load.add_rank_steps();
  auto& rank_steps = *load.add_rank_steps();
  rank_steps.set_decode_steps(13);
  rank_steps.set_decode_compute_s(14);
  rank_steps.set_decode_comm_s(15);
  rank_steps.set_prefill_steps(16);
  rank_steps.set_prefill_compute_s(17);
  rank_steps.set_prefill_comm_s(18);
  load.set_prefix_cache_queries_total(11);
  load.set_prefix_cache_hits_total(12);
  load.add_device_memory();
  v1::DeviceMemory& device = *load.add_device_memory();
  device.set_free_bytes(19);
  device.set_free_bytes_at_ready(20);
  device.set_free_bytes_least(18);
  engine_.SetLoad(load);
  {
    grpc::ClientContext context;
    v1::ServerInfo response;
    ASSERT_TRUE(control_->GetServerInfo(&context, {}, &response).ok());
    EXPECT_EQ(response.epoch(), core_->state.epoch());
    EXPECT_EQ(response.num_kv_blocks(), 3U);
  }
  grpc::ClientContext context;
  v1::LoadInfo response;
  ASSERT_TRUE(control_->GetLoad(&context, {}, &response).ok());
  EXPECT_EQ(response.num_requests_running(), 1U);
  EXPECT_EQ(response.num_requests_waiting(), 2U);
  EXPECT_EQ(response.num_kv_blocks(), 3U);
  EXPECT_EQ(response.num_kv_blocks_used(), 4U);
  EXPECT_EQ(response.num_waiting_tokens(), 5U);
  EXPECT_EQ(response.prompt_tokens_total(), 6U);
  EXPECT_EQ(response.generation_tokens_total(), 7U);
  EXPECT_EQ(response.num_preemptions_total(), 8U);
  EXPECT_EQ(response.device_allocations_after_ready(), 9U);
  EXPECT_EQ(response.num_kv_blocks_cached(), 10U);
  EXPECT_EQ(response.prefix_cache_queries_total(), 11U);
  EXPECT_EQ(response.prefix_cache_hits_total(), 12U);
  EXPECT_FALSE(response.draining());
  ASSERT_EQ(response.rank_steps_size(), 2);
  const v1::RankSteps& steps = response.rank_steps(1);
  EXPECT_EQ(steps.decode_steps(), 13U);
  EXPECT_EQ(steps.decode_compute_s(), 14);
  EXPECT_EQ(steps.decode_comm_s(), 15);
  EXPECT_EQ(steps.prefill_steps(), 16U);
  EXPECT_EQ(steps.prefill_compute_s(), 17);
  EXPECT_EQ(steps.prefill_comm_s(), 18);
  ASSERT_EQ(response.device_memory_size(), 2);
  EXPECT_EQ(response.device_memory(1).free_bytes(), 19U);
  EXPECT_EQ(response.device_memory(1).free_bytes_at_ready(), 20U);
  EXPECT_EQ(response.device_memory(1).free_bytes_least(), 18U);
}

TEST_F(ControlServiceTest, TheModelIsNamed) {
  MakeReady();
  grpc::ClientContext context;
  v1::ModelInfo response;
  ASSERT_TRUE(control_->GetModelInfo(&context, {}, &response).ok());
  EXPECT_EQ(response.served_model_name(), "letters");
}

TEST_F(ControlServiceTest, QuestionsBeforeReadyAreUnavailable) {
  grpc::ClientContext context;
  v1::LoadInfo response;
  const grpc::Status status = control_->GetLoad(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "STARTING");
}

TEST_F(ControlServiceTest, AbortEndsTheNamedRequestsAndCountsThem) {
  MakeReady();
  grpc::ClientContext a_context;
  grpc::ClientContext b_context;
  auto a = generation_->GenerateStream(&a_context, TextRequestOf("a"));
  auto b = generation_->GenerateStream(&b_context, TextRequestOf("b"));
  engine_.Next();
  engine_.Next();
  v1::AbortRequest request;
  request.add_request_ids("a");
  request.add_request_ids("a");
  request.add_request_ids("nobody");
  EXPECT_EQ(Abort(request).aborted(), 1U);
  v1::GenerateEvent event;
  while (a->Read(&event)) {
  }
  const grpc::Status status = a->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(ReasonOf(status), "ABORTED");
  request.Clear();
  request.set_all(true);
  EXPECT_EQ(Abort(request).aborted(), 1U);
  while (b->Read(&event)) {
  }
  EXPECT_EQ(ReasonOf(b->Finish()), "ABORTED");
  EXPECT_EQ(Abort(request).aborted(), 0U);
}

TEST_F(ControlServiceTest, AbortEndsAllChoicesOfARequest) {
  MakeReady();
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> calls;
  const std::string ids[] = {ChoiceId("a", 0), ChoiceId("a", 2047), "a-1"};
  for (int i = 0; i < 3; ++i) {
    calls.push_back(generation_->GenerateStream(&contexts[i], TextRequestOf(ids[i])));
    engine_.Next();
  }
  v1::AbortRequest request;
  request.add_request_ids("a");
  EXPECT_EQ(Abort(request).aborted(), 2U);
  v1::GenerateEvent event;
  for (int i = 0; i < 2; ++i) {
    while (calls[i]->Read(&event)) {
    }
    EXPECT_EQ(ReasonOf(calls[i]->Finish()), "ABORTED");
  }
  request.set_request_ids(0, "a-1");
  EXPECT_EQ(Abort(request).aborted(), 1U);
  while (calls[2]->Read(&event)) {
  }
}

TEST_F(ControlServiceTest, DrainRefusesTheNewAndFinishesTheOld) {
  MakeReady();
  grpc::ClientContext old_context;
  auto old = generation_->GenerateStream(&old_context, TextRequestOf("old"));
  const Submitted submitted = engine_.Next();
  v1::LoadInfo load;
  load.set_num_requests_running(1);
  engine_.SetLoad(load);
  v1::DrainRequest request;
  request.set_timeout_s(9);
  {
    grpc::ClientContext context;
    v1::DrainResponse response;
    ASSERT_TRUE(control_->Drain(&context, request, &response).ok());
    EXPECT_EQ(response.num_requests_running(), 1U);
  }
  EXPECT_EQ(engine_.WaitForDrain(), absl::Seconds(9));
  {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = generation_->Generate(&context, TextRequestOf("new"), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(ReasonOf(status), "DRAINING");
    EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(status).has_value());
  }
  {
    grpc::ClientContext context;
    v1::LoadInfo response;
    ASSERT_TRUE(control_->GetLoad(&context, {}, &response).ok());
    EXPECT_TRUE(response.draining());
  }
  submitted.Send(0, {1}, "x");
  submitted.Finish(FinishReason::kEos, 1);
  v1::GenerateEvent event;
  int events = 0;
  while (old->Read(&event)) ++events;
  EXPECT_TRUE(old->Finish().ok());
  EXPECT_EQ(events, 3);
}

class DrainOfPortTest : public ControlServiceTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(MainAndControl, DrainOfPortTest, ::testing::Bool());

TEST_P(DrainOfPortTest, IsAnsweredWhenAllHaveEndedWhereItIsToWait) {
  MakeReady();
  v1::LoadInfo load;
  load.set_num_requests_running(3);
  engine_.SetLoad(load);
  v1::DrainRequest request;
  request.set_wait(true);
  const auto control = v1::Control::NewStub(
      grpc::CreateChannel(GetParam() ? server_->control_target() : server_->target(),
                          grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::DrainResponse response;
  absl::Notification answered;
  grpc::Status status;
  control->async()->Drain(&context, &request, &response, [&](const grpc::Status& answer) {
    status = answer;
    answered.Notify();
  });
  const std::shared_ptr<const DrainEnd> ended = engine_.TakeDrainEnd();
  EXPECT_FALSE(answered.HasBeenNotified());
  ASSERT_NE(ended, nullptr);
  (*ended)({.finished = 2, .cut = 1});
  answered.WaitForNotification();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.num_requests_running(), 3U);
  EXPECT_EQ(response.num_requests_finished(), 2U);
  EXPECT_EQ(response.num_requests_cut(), 1U);
}

TEST_F(ControlServiceTest, TheControlPortAnswersWhileAsManyWaitAsMay) {
  MakeReady();
  const auto control = v1::Control::NewStub(
      grpc::CreateChannel(server_->control_target(), grpc::InsecureChannelCredentials()));
  struct Call {
    grpc::ClientContext context;
    v1::DrainResponse response;
    grpc::Status status;
    absl::Notification answered;
  };
  v1::DrainRequest request;
  request.set_wait(true);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 13; ++i) {
    Call* const call = calls.emplace_back(std::make_unique<Call>()).get();
    control->async()->Drain(&call->context, &request, &call->response, [call](const auto& status) {
      call->status = status;
      call->answered.Notify();
    });
  }
  const auto refused = [](const auto& call) { return call->answered.HasBeenNotified(); };
  while (std::none_of(calls.begin(), calls.end(), refused)) std::this_thread::yield();
  EXPECT_EQ((*std::find_if(calls.begin(), calls.end(), refused))->status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  v1::LoadInfo load;
  EXPECT_TRUE(control->GetLoad(&context, v1::GetLoadRequest(), &load).ok());
  for (const auto& call : calls) {
    call->context.TryCancel();
    call->answered.WaitForNotification();
  }
}

TEST_F(ControlServiceTest, ADrainWithoutATimeUsesTheServersOwn) {
  MakeReady();
  grpc::ClientContext context;
  v1::DrainResponse response;
  ASSERT_TRUE(control_->Drain(&context, v1::DrainRequest(), &response).ok());
  EXPECT_EQ(engine_.WaitForDrain(), std::nullopt);
}

TEST_F(ControlServiceTest, AnAbsurdDrainTimeIsRefusedAndChangesNothing) {
  MakeReady();
  grpc::ClientContext context;
  v1::DrainRequest request;
  request.set_timeout_s(0xFFFFFFFF);
  v1::DrainResponse response;
  EXPECT_EQ(control_->Drain(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
  grpc::ClientContext next;
  v1::GenerateResponse generated;
  EXPECT_TRUE(generation_->Generate(&next, TextRequestOf("r"), &generated).ok());
}

TEST_F(ControlServiceTest, LimitsAreTightenedSeenAndWidenedAgain) {
  MakeReady();
  const auto set = [this](const v1::SetLimitsRequest& request, v1::SetLimitsResponse* response) {
    grpc::ClientContext context;
    return control_->SetLimits(&context, request, response);
  };
  v1::SetLimitsRequest request;
  request.set_max_num_seqs(2);
  request.set_max_model_len(32);
  v1::SetLimitsResponse response;
  ASSERT_TRUE(set(request, &response).ok());
  EXPECT_EQ(response.before().max_num_seqs(), 4U);
  EXPECT_EQ(response.now().max_num_seqs(), 2U);
  EXPECT_EQ(response.now().max_model_len(), 32U);
  EXPECT_EQ(response.now().max_num_queued_reqs(), 7U);
  EXPECT_EQ(response.sealed().max_num_queued_reqs(), 7U);
  {
    grpc::ClientContext context;
    v1::ServerInfo info;
    ASSERT_TRUE(control_->GetServerInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.max_model_len(), 32U);
  }
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GenerateRequest generate;
    for (int i = 0; i < 32; ++i) generate.mutable_token_ids()->add_ids(0);
    v1::GenerateResponse generated;
    const grpc::Status refused = generation_->Generate(&context, generate, &generated);
    EXPECT_EQ(ReasonOf(refused), "PROMPT_TOO_LONG");
    EXPECT_THAT(refused.error_message(), testing::HasSubstr("max_model_len 32"));
    EXPECT_THAT(refused.error_message(), testing::HasSubstr("limits --reset"));
  }
  request.set_max_num_seqs(5);
  EXPECT_EQ(set(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.Clear();
  request.set_reset(true);
  ASSERT_TRUE(set(request, &response).ok());
  EXPECT_EQ(response.now().max_num_seqs(), 4U);
  EXPECT_EQ(response.now().max_model_len(), uint32_t{kTestModelLen});
}

template <typename Request, typename Response, typename Stub>
std::string ReasonForUnknownField(Stub& stub,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*)) {
  Request request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 7);
  grpc::ClientContext context;
  Response response;
  return ReasonOf((stub.*method)(&context, request, &response));
}

TEST_F(ControlServiceTest, NoCallIgnoresAFieldThatIsNotKnown) {
  MakeReady();
  using Control = v1::Control::Stub;
  using Generation = v1::Generation::Stub;
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::GetServerInfo), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::GetModelInfo), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::GetLoad), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::GetRankTable), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::Abort), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*control_, &Control::Drain), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*generation_, &Generation::Tokenize), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(ReasonForUnknownField(*generation_, &Generation::Detokenize), "UNSUPPORTED_PARAMETER");
}

TEST_F(ControlServiceTest, LimitThatIsNotKnownIsRefusedAndChangesNothing) {
  MakeReady();
  v1::SetLimitsRequest request;
  request.set_max_num_seqs(1);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 7);
  grpc::ClientContext context;
  v1::SetLimitsResponse response;
  EXPECT_EQ(ReasonOf(control_->SetLimits(&context, request, &response)), "UNSUPPORTED_PARAMETER");
  EXPECT_EQ(engine_.Limits(), FakeLimits());
}

TEST_F(ControlServiceTest, ARequestThatIsTooLongIsRefusedByName) {
  MakeReady();
  v1::AbortRequest request;
  request.add_request_ids(std::string(65 << 10, 'r'));
  grpc::ClientContext context;
  v1::AbortResponse response;
  EXPECT_EQ(ReasonOf(control_->Abort(&context, request, &response)), "MESSAGE_TOO_LARGE");
}

}  // namespace
}  // namespace bulkhead
