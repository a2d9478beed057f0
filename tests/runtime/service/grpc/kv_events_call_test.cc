// SubscribeKvEvents over gRPC, with a log that the test writes.
#include "runtime/service/grpc/kv_events_call.h"

#include <gmock/gmock.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/call_fixture.h"
#include "tests/runtime/service/grpc/service_fixture.h"
#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace bulkhead {
namespace {

namespace vllm_api = ::vllm::grpc::engine;
using testing::ElementsAre;
using testing::HasSubstr;

class KvEventsCallTest : public ServiceFixture {
 protected:
  using Reader = std::unique_ptr<grpc::ClientReader<vllm_api::KvEventBatch>>;

  void SetUp() override {
    ServiceFixture::SetUp();
    stub_ = vllm_api::VllmEngine::NewStub(channel_);
    ServingParts parts = Parts();
    parts.server_info.set_block_size(2);
    parts.kv_events = log_;
    core_->SetReady(std::move(parts));
  }
  void TearDown() override {
    WaitForCalls(0);
    ServiceFixture::TearDown();
    EXPECT_EQ(core_->host.answer_bytes.now(), 0);
  }
  void WaitForCalls(int64_t calls) {
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (core_->host.open_calls.now() != calls && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(core_->host.open_calls.now(), calls);
  }
  Reader Subscribe(grpc::ClientContext* context, uint64_t start = 0) {
    vllm_api::SubscribeKvEventsRequest request;
    request.set_start_sequence_number(start);
    return stub_->SubscribeKvEvents(context, request);
  }
  static vllm_api::KvEventBatch Next(const Reader& reader) {
    vllm_api::KvEventBatch batch;
    EXPECT_TRUE(reader->Read(&batch));
    return batch;
  }

  std::shared_ptr<KvEventLog> log_ = std::make_shared<KvEventLog>(2);
  std::unique_ptr<vllm_api::VllmEngine::Stub> stub_;
};

TEST_F(KvEventsCallTest, BlocksOfAPromptAreOneEventAndRemovalsFollow) {
  log_->Stored(50, 0, {1, 2});
  log_->Stored(51, 50, {3, 4});
  log_->Stored(90, 7, {5, 6});
  log_->Removed(50);
  log_->EndBatch();
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context, 1);
  const vllm_api::KvEventBatch batch = Next(reader);
  EXPECT_EQ(batch.sequence_number(), 1);
  EXPECT_GT(batch.timestamp(), 1e9);
  EXPECT_EQ(batch.dp_rank(), 0);
  ASSERT_EQ(batch.events_size(), 3);
  const vllm_api::KvBlocksStored& prompt = batch.events(0).stored();
  EXPECT_FALSE(prompt.has_parent_block_hash());
  ASSERT_EQ(prompt.blocks_size(), 2);
  EXPECT_EQ(prompt.blocks(0).block_hash(), 50);
  EXPECT_EQ(prompt.blocks(1).block_size(), 2);
  EXPECT_THAT(prompt.blocks(1).token_ids(), ElementsAre(3, 4));
  EXPECT_EQ(batch.events(1).stored().parent_block_hash(), 7);
  EXPECT_THAT(batch.events(2).removed().block_hashes(), ElementsAre(50));
  log_->Removed(51);
  log_->EndBatch();
  EXPECT_EQ(Next(reader).sequence_number(), 2);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(KvEventsCallTest, ASubscriberWithoutANumberGetsWhatComes) {
  log_->Removed(1);
  log_->EndBatch();
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context);
  reader->WaitForInitialMetadata();  // it has subscribed, before there is an event
  log_->Removed(2);
  log_->EndBatch();
  EXPECT_EQ(Next(reader).sequence_number(), 2);
  context.TryCancel();
  reader->Finish();
}

TEST_F(KvEventsCallTest, ANumberThatIsNotThereIsCleared) {
  log_->Removed(1);
  log_->EndBatch();
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context, 77);
  const vllm_api::KvEventBatch cleared = Next(reader);
  EXPECT_EQ(cleared.sequence_number(), 0);
  ASSERT_EQ(cleared.events_size(), 1);
  EXPECT_TRUE(cleared.events(0).has_cleared());
  EXPECT_EQ(Next(reader).sequence_number(), 1);
  context.TryCancel();
  reader->Finish();
}

TEST_F(KvEventsCallTest, TheEndOfTheServerEndsTheStream) {
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context);
  reader->WaitForInitialMetadata();
  log_->Close();
  vllm_api::KvEventBatch batch;
  EXPECT_FALSE(reader->Read(&batch));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(KvEventsCallTest, ADeadlineIsCountedAsOne) {
  FakeTransport transport;
  const auto call = std::make_shared<KvEventsCall>(core_.get(), &transport);
  call->Start(std::make_unique<SerializedRequest>(vllm_api::SubscribeKvEventsRequest()));
  call->OnCancelled(/*deadline_passed=*/true);
  EXPECT_EQ(core_->errors.Get()[reason::kDeadline], 1);
  call->OnClosed();
}

TEST_F(KvEventsCallTest, ThereIsALimitOfSubscribers) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<Reader> readers;
  log_->Removed(1);
  log_->EndBatch();
  for (int i = 0; i < KvEventLog::kMaxReaders; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(Subscribe(contexts.back().get(), 1));
    Next(readers.back());
  }
  grpc::ClientContext one_more;
  const Reader refused = Subscribe(&one_more, 1);
  vllm_api::KvEventBatch batch;
  EXPECT_FALSE(refused->Read(&batch));
  const grpc::Status status = refused->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("16 subscriptions"));
  for (const auto& context : contexts) context->TryCancel();
  for (const Reader& reader : readers) {
    while (reader->Read(&batch)) {
    }
    reader->Finish();
  }
  WaitForCalls(0);
  grpc::ClientContext again;
  const Reader reader = Subscribe(&again, 1);
  EXPECT_EQ(Next(reader).sequence_number(), 1);
  again.TryCancel();
  reader->Finish();
}

// The client's flow control window fills up; the log runs ahead and overwrites what it waits for.
TEST_F(KvEventsCallTest, ASlowSubscriberIsToldToForgetAllBlocks) {
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context, 1);
  uint64_t hash = 0;
  for (int batch = 0; batch < 4000; ++batch) {
    for (int i = 0; i < 100; ++i) log_->Stored(++hash, 0, {1, 2});
    log_->EndBatch();
  }
  uint64_t last = 0;
  int cleared = 0;
  while (last < 4000) {
    const vllm_api::KvEventBatch batch = Next(reader);
    if (batch.events(0).has_cleared()) {
      ++cleared;
      EXPECT_GT(batch.sequence_number(), last);
    } else {
      ASSERT_EQ(batch.sequence_number(), last + 1);
    }
    last = batch.sequence_number();
  }
  EXPECT_GT(cleared, 0);
  context.TryCancel();
  reader->Finish();
}

TEST_F(KvEventsCallTest, ASubscriberThatDoesNotReadIsEnded) {
  server_->Shutdown(absl::ZeroDuration());
  quotas_.unread_answer_ms = 100;
  SetUp();
  grpc::ClientContext context;
  const Reader reader = Subscribe(&context);
  reader->WaitForInitialMetadata();
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (core_->errors.Get()[reason::kSlowReader] == 0 && absl::Now() < limit) {
    for (int i = 0; i < KvEventLog::kMaxBatchEvents; ++i) log_->Stored(i + 1, 0, {1, 2});
    log_->EndBatch();
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(core_->errors.Get()[reason::kSlowReader], 1);
  vllm_api::KvEventBatch batch;
  while (reader->Read(&batch)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace bulkhead
