// `bulkhead drain` against an in-process server that answers as a test needs.
#include "launcher/clients/drain.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "tests/launcher/local_server.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FakeControl : public v1::Control::Service {
 public:
  absl::Notification drained;
  absl::Notification* loss = nullptr;  // ends a call that waits; absent: it is answered at once
  bool goes_on = false;                // the call alone was lost, once
  std::atomic<uint32_t> timeout_s{0};
  std::atomic<uint32_t> running{1};
  std::atomic<uint32_t> unsent{0};
  std::atomic<int> questions{0};
  std::function<grpc::Status(int question)> answer;  // absent: always OK

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    timeout_s = request->timeout_s();
    response->set_num_requests_running(running);
    if (!drained.HasBeenNotified()) drained.Notify();
    if (loss == nullptr || (goes_on && loss->HasBeenNotified())) return grpc::Status::OK;
    loss->WaitForNotification();
    return {grpc::StatusCode::UNAVAILABLE, "rank 1 was lost"};
  }
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*,
                       v1::LoadInfo* load) override {
    drained.WaitForNotification();
    load->set_num_requests_running(running);
    load->set_num_unsent_answers(unsent);
    load->set_draining(goes_on || loss == nullptr || !loss->HasBeenNotified());
    return answer == nullptr ? grpc::Status::OK : answer(++questions);
  }
};

class DrainTest : public ::testing::Test {
 protected:
  void SetUp() override { options_.target = server_.target(); }

  // Of a server that gives `answer` and is gone after `questions` of them.
  absl::Status RunDrainFor(int questions, const std::function<grpc::Status(int question)>& answer) {
    absl::Notification asked;
    control_.answer = [&](int question) {
      if (question == questions) asked.Notify();
      return answer(question);
    };
    std::thread server([&] {
      asked.WaitForNotification();
      server_.Shutdown();
    });
    absl::Status status = RunDrain(options_);
    if (!asked.HasBeenNotified()) asked.Notify();
    server.join();
    return status;
  }

  FakeControl control_;
  LocalServer server_{{&control_}};
  DrainOptions options_;
};

TEST_F(DrainTest, ReturnsWhenTheServerIsGone) {
  std::thread server([this] {
    control_.drained.WaitForNotification();
    server_.Shutdown();
  });
  options_.timeout = absl::Milliseconds(1500);
  EXPECT_TRUE(RunDrain(options_).ok());
  server.join();
  EXPECT_EQ(control_.timeout_s, 2U);
}

TEST_F(DrainTest, FailsWhereTheGroupIsLostWithRequests) {
  absl::Notification loss;
  control_.loss = &loss;
  control_.answer = [&](int question) {
    if (question == 2) loss.Notify();
    return grpc::Status::OK;
  };
  std::thread server([&] {
    loss.WaitForNotification();
    server_.Shutdown();
  });
  const absl::Status lost = RunDrain(options_);
  server.join();
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("rank 1 was lost"), HasSubstr("1 running and 0 waiting")));
}

TEST_F(DrainTest, FailsWhereTheServerIsGoneWithoutItsWordThatAllHaveEnded) {
  absl::Notification loss;
  control_.loss = &loss;
  control_.running = 0;
  control_.answer = [&](int question) {
    if (question == 2) loss.Notify();
    return grpc::Status::OK;
  };
  std::thread server([&] {
    loss.WaitForNotification();
    server_.Shutdown();
  });
  const absl::Status lost = RunDrain(options_);
  server.join();
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kClientError);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("did not stop cleanly"));
}

TEST_F(DrainTest, ACallThatIsLostOnTheWayIsNoLostGroup) {
  absl::Notification loss;
  control_.loss = &loss;
  control_.goes_on = true;
  const auto answer = [&](int question) {
    if (question == 2) loss.Notify();
    return grpc::Status::OK;
  };
  const absl::Status status = RunDrainFor(6, answer);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(DrainTest, DoesNotWaitForEverForAServerThatStays) {
  options_.timeout = absl::ZeroDuration();
  options_.patience = absl::Milliseconds(1);
  const absl::Status late = RunDrain(options_);
  EXPECT_EQ(ExitCodeOf(late), ExitCode::kClientError);
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("still answers after its drain timeout"), HasSubstr("1 running")));
  options_.timeout.reset();
  control_.running = 0;
  EXPECT_THAT(std::string(RunDrain(options_).message()), HasSubstr("has nothing left to do"));
}

// What a question that the server does not answer ends with, after 10 s.
grpc::Status Unanswered() { return {grpc::StatusCode::DEADLINE_EXCEEDED, ""}; }

TEST_F(DrainTest, DoesNotWaitForEverForAServerThatDoesNotAnswer) {
  control_.answer = [](int question) { return question == 1 ? grpc::Status::OK : Unanswered(); };
  const absl::Status late = RunDrain(options_);
  EXPECT_EQ(ExitCodeOf(late), ExitCode::kClientError);
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("no longer answers"), HasSubstr("1 running")));
  EXPECT_EQ(control_.questions, 4);  // three of them are its patience
}

// Its patience is shorter than its own sleep between two questions.
TEST_F(DrainTest, AClientThatWasItselfStoppedDoesNotTakeTheServerForSilent) {
  options_.patience = absl::Milliseconds(1);
  const absl::Status status = RunDrainFor(5, [](int) { return grpc::Status::OK; });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(DrainTest, AServerWhoseAnswersAreNotReadYetIsNotIdle) {
  options_.patience = absl::Milliseconds(1);
  control_.running = 0;
  control_.unsent = 2;
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunDrainFor(5, [](int) { return grpc::Status::OK; });
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(said, HasSubstr("draining: 0 running, 0 waiting, 2 not read to the end\n"));
}

TEST_F(DrainTest, AQuestionThatWasNotAnsweredIsAskedAgain) {
  const absl::Status status = RunDrainFor(
      8, [](int question) { return question % 2 == 0 ? grpc::Status::OK : Unanswered(); });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace bulkhead
