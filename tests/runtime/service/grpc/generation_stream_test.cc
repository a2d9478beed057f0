// GenerateStream: order, merging, slow readers, cancellation, concurrency.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/service/generate_call.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::AnyOf;

class GenerationStreamTest : public ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    MakeReady();
  }
};

// A stream as received by a client. `ids` must be contiguous from `first_position`.
struct Received {
  bool accepted_first = false;
  bool finished_last = false;
  int num_deltas = 0;
  std::vector<uint32_t> ids;
  std::string text;
  v1::Accepted accepted;
  v1::Finished finished;
  grpc::Status status;
};

Received ReadAll(grpc::ClientReader<v1::GenerateEvent>& reader, uint64_t first_position = 0) {
  Received out;
  v1::GenerateEvent event;
  bool first = true;
  while (reader.Read(&event)) {
    EXPECT_FALSE(out.finished_last) << "an event after Finished";
    if (event.has_accepted()) {
      out.accepted_first = first;
      out.accepted = event.accepted();
    } else if (event.has_delta()) {
      EXPECT_EQ(event.delta().position(), first_position + out.ids.size());
      ++out.num_deltas;
      for (const v1::Token& token : event.delta().tokens()) out.ids.push_back(token.id());
      out.text += event.delta().text();
    } else {
      out.finished_last = true;
      out.finished = event.finished();
    }
    first = false;
  }
  out.status = reader.Finish();
  return out;
}

TEST_F(GenerationStreamTest, EventsComeInOrder) {
  engine_.AnswerWith([](const Submitted& submitted) {
    submitted.Send(0, {'x'}, "x");
    submitted.Send(1, {'y', 'z'}, "yz");
    submitted.Finish(FinishReason::kEos, 3);
  });
  v1::GenerateRequest request = TextRequestOf("r");
  request.mutable_sampling()->set_seed(5);
  request.mutable_output()->set_prompt_token_ids(true);
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, request);
  const Received got = ReadAll(*reader);
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_TRUE(got.accepted_first);
  EXPECT_TRUE(got.finished_last);
  EXPECT_EQ(got.text, "xyz");
  EXPECT_EQ(got.accepted.seed(), 5U);
  EXPECT_EQ(got.accepted.prompt_tokens(), 3U);
  EXPECT_EQ(got.accepted.max_tokens(), static_cast<uint32_t>(kTestModelLen - 3));
  EXPECT_EQ(got.accepted.prompt_token_ids().ids_size(), 3);
  EXPECT_EQ(got.finished.reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(got.finished.usage().completion_tokens(), 3U);
}

TEST_F(GenerationStreamTest, EveryEventCarriesIdAndEpoch) {
  engine_.AnswerWith([](const Submitted& submitted) {
    submitted.Send(0, {'x'}, "x");
    submitted.Finish(FinishReason::kMaxTokens, 1);
  });
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r7"));
  v1::GenerateEvent event;
  int events = 0;
  for (; reader->Read(&event); ++events) {
    EXPECT_EQ(event.request_id(), "r7");
    EXPECT_EQ(event.epoch(), core_->state.epoch());
  }
  EXPECT_EQ(events, 3);
}

TEST_F(GenerationStreamTest, AResumedStreamGoesOnAtItsPosition) {
  engine_.AnswerWith([](const Submitted& submitted) {
    EXPECT_EQ(submitted.request.emitted.size(), 2U);
    submitted.Send(2, {'z'}, "z");
    submitted.Finish(FinishReason::kEos, 3);
  });
  v1::GenerateRequest request = TextRequestOf("r");
  request.mutable_sampling()->set_seed(5);
  request.mutable_resume()->add_emitted_token_ids('x');
  request.mutable_resume()->add_emitted_token_ids('y');
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, request);
  const Received got = ReadAll(*reader, 2);
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.ids.size(), 1U);
}

TEST_F(GenerationStreamTest, AFailureComesAfterEverythingThatWasGenerated) {
  engine_.AnswerWith([](const Submitted& submitted) {
    submitted.Send(0, {'x', 'y'}, "xy");
    submitted.Fail(absl::UnavailableError("rank 1 was lost"));
  });
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  const Received got = ReadAll(*reader);
  EXPECT_EQ(got.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(got.status), "RANK_LOST");
  EXPECT_EQ(got.ids.size(), 2U);
  EXPECT_FALSE(got.finished_last);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto emitted = trailers.find("x-tokens-emitted");
  ASSERT_NE(emitted, trailers.end());
  EXPECT_EQ(std::string(emitted->second.data(), emitted->second.size()), "2");
}

TEST_F(GenerationStreamTest, ARefusalIsTheOnlyAnswer) {
  engine_.RefuseWith(absl::ResourceExhaustedError("full"));
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  v1::GenerateEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(ReasonOf(reader->Finish()), "QUEUE_FULL");
}

// While nothing reads, the stream's window fills and later deltas are merged.
TEST_F(GenerationStreamTest, DeltasThatWaitAreJoinedInOrder) {
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  const Submitted submitted = engine_.Next();
  constexpr int kLarge = 8;
  constexpr int kSmall = 1000;
  std::vector<uint32_t> want;
  std::string want_text;
  for (int i = 0; i < kLarge + kSmall; ++i) {
    const auto id = static_cast<TokenId>(i % 256);
    const std::string text = i < kLarge ? std::string(kMaxBufferedBytes / 16, 'L') : "s";
    submitted.Send(i, {id}, text);
    want.push_back(static_cast<uint32_t>(id));
    want_text += text;
  }
  submitted.Finish(FinishReason::kMaxTokens, kLarge + kSmall);
  const Received got = ReadAll(*reader);
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.ids, want);
  EXPECT_EQ(got.text, want_text);
  EXPECT_LT(got.num_deltas, kSmall / 2);
  EXPECT_TRUE(got.finished_last);
}

TEST_F(GenerationStreamTest, AReaderThatIsTooSlowIsCut) {
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  const Submitted submitted = engine_.Next();
  const std::string text(kMaxBufferedBytes / 8, 't');
  uint64_t sent = 0;
  for (; sent < 1000 && !engine_.WasCancelled("r"); ++sent) submitted.Send(sent, {1}, text);
  EXPECT_LT(sent, 1000U);
  EXPECT_EQ(engine_.WaitForCancel("r").code(), absl::StatusCode::kResourceExhausted);
  const Received got = ReadAll(*reader);
  EXPECT_EQ(got.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(got.status), "SLOW_READER");
  EXPECT_LT(got.ids.size(), sent);
}

TEST_F(GenerationStreamTest, ADeltaOutOfPlaceIsABugAndNotPassedOn) {
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  engine_.Next().Send(5, {1}, "x");
  const Received got = ReadAll(*reader);
  EXPECT_EQ(got.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(got.ids.empty());
  EXPECT_TRUE(engine_.WasCancelled("r"));
}

TEST_F(GenerationStreamTest, ACancelledStreamStopsTheEngine) {
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {1}, "a");
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  context.TryCancel();
  EXPECT_EQ(engine_.WaitForCancel("r").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_->FlushAndWait(absl::InfiniteDuration()));
}

TEST_F(GenerationStreamTest, AClientThatDisconnectsStopsTheEngine) {
  auto channel = NewChannel();
  auto stub = v1::Generation::NewStub(channel);
  auto context = std::make_unique<grpc::ClientContext>();
  auto reader = stub->GenerateStream(context.get(), TextRequestOf("r"));
  engine_.Next();
  context->TryCancel();
  reader->Finish();
  reader.reset();
  context.reset();
  stub.reset();
  channel.reset();
  EXPECT_EQ(engine_.WaitForCancel("r").code(), absl::StatusCode::kCancelled);
}

TEST_F(GenerationStreamTest, ADeadlineStopsTheEngine) {
  bool accepted = false;
  std::string id;
  // Until a call reaches the engine before its deadline.
  for (int seconds = 1; !accepted && seconds < 100; seconds *= 2) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
    id = std::to_string(seconds);
    auto reader = generation_->GenerateStream(&context, TextRequestOf(id));
    v1::GenerateEvent event;
    accepted = reader->Read(&event);
    EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ASSERT_TRUE(accepted);
  // The server may learn from the client that the call is over before its own deadline, which is
  // later by the time that the call took to come.
  EXPECT_THAT(engine_.WaitForCancel(id).code(),
              AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kCancelled));
}

TEST_F(GenerationStreamTest, AnEndThatComesWithTheSubmissionLosesNothing) {
  engine_.AnswerWith([](const Submitted& submitted) { submitted.Finish(FinishReason::kEos, 0); });
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    auto reader = generation_->GenerateStream(&context, TextRequestOf("r"));
    const Received got = ReadAll(*reader);
    ASSERT_TRUE(got.status.ok());
    ASSERT_TRUE(got.accepted_first && got.finished_last);
  }
}

TEST_F(GenerationStreamTest, TwoHundredStreamsAtOnceKeepApart) {
  constexpr int kStreams = 200;
  constexpr int kTokens = 50;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    v1::GenerateRequest request = TextRequestOf(std::to_string(i));
    request.mutable_sampling()->set_seed(i);
    readers.push_back(generation_->GenerateStream(contexts.back().get(), request));
  }
  std::vector<Submitted> submitted;
  for (int i = 0; i < kStreams; ++i) submitted.push_back(engine_.Next());
  std::thread steps([&] {
    for (int t = 0; t < kTokens; ++t) {
      for (const Submitted& s : submitted) {
        s.Send(t, {static_cast<TokenId>(s.request.sampling.seed)}, "x");
      }
    }
    for (const Submitted& s : submitted) s.Finish(FinishReason::kMaxTokens, kTokens);
  });
  for (int i = 0; i < kStreams; ++i) {
    const Received got = ReadAll(*readers[i]);
    EXPECT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.ids, std::vector<uint32_t>(kTokens, i));
  }
  steps.join();
  EXPECT_TRUE(server_->FlushAndWait(absl::InfiniteDuration()));
}

TEST_F(GenerationStreamTest, CancellingWhileTokensFlowEndsEveryStreamOnce) {
  for (int round = 0; round < 30; ++round) {
    grpc::ClientContext context;
    const std::string id = "r" + std::to_string(round);
    auto reader = generation_->GenerateStream(&context, TextRequestOf(id));
    const Submitted submitted = engine_.Next();
    std::thread engine([&] {
      for (int t = 0; t < 200 && !engine_.WasCancelled(id); ++t) submitted.Send(t, {1}, "x");
      EXPECT_EQ(engine_.WaitForCancel(id).code(), absl::StatusCode::kCancelled);
    });
    v1::GenerateEvent event;
    // At least Accepted and one delta, however many were merged.
    for (int n = 0; n < round % 3; ++n) EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    engine.join();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(server_->FlushAndWait(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace bulkhead
