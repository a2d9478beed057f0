// Sends the requests of a benchmark when they are due and records the answers and their times: one
// thread sends, some threads (each with a connection and a completion queue of its own) receive.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "launcher/bench/serve/request_record.h"
#include "launcher/clients/client_channel.h"

namespace bulkhead {

// What one run sends. The requests outlive the run.
struct LoadPlan {
  const std::vector<v1::GenerateRequest>* requests = nullptr;
  // Seconds since the begin, one per request, ascending. Empty: each is due when a slot of
  // max_concurrency becomes free (closed loop).
  std::vector<double> due_s;
  std::optional<int> max_concurrency;
  int run = 0;
};

struct LoadProgress {
  int sent = 0;
  int completed = 0;
  int failed = 0;
  int64_t tokens = 0;
  int in_flight() const { return sent - completed - failed; }
};

class LoadGenerator {
 public:
  // UNAVAILABLE naming the target, with exit code 1, when no server answers. `timeout` bounds each
  // request.
  static absl::StatusOr<std::unique_ptr<LoadGenerator>> Connect(
      const std::string& target, int threads, std::optional<absl::Duration> timeout,
      const ClientCredentials& credentials = {});
  ~LoadGenerator();
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // Blocks until every request has ended, or Stop. One run at a time.
  RunRecord Run(const LoadPlan& plan);

  // Sends nothing more and cancels what is in flight. Any thread; for good.
  void Stop();

  // Counts of the run in progress or the last one. Any thread.
  LoadProgress progress() const;
  // Whether the run was aborted because successive requests found no server.
  bool server_is_gone() const { return server_is_gone_; }
  // CPU time of the busiest of our threads during the last run, over its duration.
  double busiest_thread_share() const { return busiest_thread_share_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return receivers_[0]->channel; }

 private:
  class Call;
  struct Receiver {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Generation::Stub> stub;
    grpc::CompletionQueue queue;
    std::thread thread;
  };

  LoadGenerator() = default;
  double Now() const;  // seconds since the run began
  void Receive(grpc::CompletionQueue* queue);
  void SendAll(const LoadPlan& plan, std::vector<RequestRecord>* records);
  // Waits until the request may be sent; returns the time from which it could have been, or nothing
  // once stopped. Sets `scheduled_s`.
  std::optional<double> WaitForTurn(const LoadPlan& plan, size_t index, double* scheduled_s);
  void OnEnd(Call* call);
  std::vector<double> ThreadSeconds(pthread_t sender) const;

  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::string target_;
  std::optional<absl::Duration> timeout_;
  CallsInFlight calls_;
  std::chrono::steady_clock::time_point begin_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<double> free_slots_ ABSL_GUARDED_BY(mutex_);  // time since which each is free
  int consecutive_unavailable_ ABSL_GUARDED_BY(mutex_) = 0;

  std::atomic<bool> server_is_gone_{false};
  double busiest_thread_share_ = 0;
  std::atomic<int> sent_{0}, completed_{0}, failed_{0};
  std::atomic<int64_t> tokens_{0};
};

}  // namespace bulkhead
