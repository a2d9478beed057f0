// HeldRunner: a step runner whose steps are released one by one by a test.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/step_runner.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {

// Runs the toy model; a step does not end until it is released.
class HeldRunner final : public StepRunner {
 public:
  explicit HeldRunner(const SchedulerLimits& limits) : toy_(limits) {}

  int depth() const override { return toy_.depth(); }
  absl::Status Submit(Step step) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++begun_;
    changed_.notify_all();
    return toy_.Submit(std::move(step));
  }
  absl::StatusOr<StepResult> Collect() override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++ended_;
    changed_.wait(lock, [this] { return allowed_ >= ended_; });
    if (!answer_.ok()) return answer_;
    return toy_.Collect();
  }
  // Releases the steps up to number `count`.
  void Allow(int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    allowed_ = count;
    changed_.notify_all();
  }
  void WaitUntilBegun(int64_t step) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= step; });
  }
  void FailWith(absl::Status answer) {
    std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
  }

 private:
  ToyRunner toy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t begun_ = 0;
  int64_t ended_ = 0;
  int64_t allowed_ = 0;
  absl::Status answer_;
};

}  // namespace bulkhead
