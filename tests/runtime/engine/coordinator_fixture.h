// A coordinator over a runner that waits for permission for each step, and a clock set by tests.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/rank_loop.h"
#include "tests/runtime/engine/held_runner.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {

// Every second token is the second byte of a character.
class HalvesDecoder final : public TextDecoder {
 public:
  std::string Add(int32_t /*id*/) override { return ++num_ % 2 == 0 ? "\u00E9" : ""; }
  std::string Finish() override { return num_ % 2 == 0 ? "" : "\uFFFD"; }

 private:
  int num_ = 0;
};

// On request takes a while for each token, or has two tokens for each character.
class SlowTokenizer final : public Tokenizer {
 public:
  explicit SlowTokenizer(std::atomic<uint64_t>& now_ns) : now_ns_(now_ns) {}
  void SetDelay(uint64_t delay_ns) { delay_ns_ = delay_ns; }
  void SetHalves() { halves_ = true; }
  std::unique_ptr<TextDecoder> NewTextDecoder(absl::Span<const int32_t> prompt,
                                              bool skip) const override {
    if (halves_) return std::make_unique<HalvesDecoder>();
    return Tokenizer::NewTextDecoder(prompt, skip);
  }

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add) const override {
    return letters_.Encode(text, add);
  }
  std::string Decode(absl::Span<const int32_t> ids, bool skip) const override {
    now_ns_ += delay_ns_ * ids.size();
    return letters_.Decode(ids, skip);
  }
  int vocab_size() const override { return letters_.vocab_size(); }

 private:
  const LetterTokenizer letters_;
  std::atomic<uint64_t>& now_ns_;
  std::atomic<uint64_t> delay_ns_{0};
  std::atomic<bool> halves_{false};
};

class CoordinatorTest : public testing::Test {
 protected:
  static constexpr int64_t kAll = int64_t{1} << 60;

  void Begin(SchedulerLimits limits = ToyLimits()) {
    limits_ = limits;
    runner_ = std::make_unique<HeldRunner>(limits);
    Coordinator::Options options;
    options.limits = limits;
    options.eos_ids = {kToyEos};
    options.tokenizer = &tokenizer_;
    options.now_ns = [this] { return now_ns_.load(); };
    options.costs = [this] {
      return StepCosts{.collective_ns = collective_ns_, .sampling_ns = sampling_ns_};
    };
    options.unsent_answers = unsent_answers_;
    coordinator_ = std::make_unique<Coordinator>(std::move(options));
    loop_ =
        std::thread([this] { status_ = RunRank(*runner_, nullptr, coordinator_.get(), nullptr); });
  }
  void TearDown() override {
    if (!loop_.joinable()) return;
    runner_->Allow(kAll);
    coordinator_->BeginDrain(absl::ZeroDuration());
    loop_.join();
  }
  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(coordinator_->Submit(request, sink).ok());
    return sink;
  }
  ToyResult Want(const Request& request) {
    return ToyGenerate(request, {kToyEos}, limits_.max_model_len);
  }

  SchedulerLimits limits_;
  std::atomic<uint64_t> now_ns_{1000};
  std::atomic<uint64_t> collective_ns_{100};
  std::atomic<uint64_t> sampling_ns_{200};
  std::function<size_t(absl::Duration)> unsent_answers_;  // of the next Begin
  SlowTokenizer tokenizer_{now_ns_};
  std::unique_ptr<HeldRunner> runner_;
  std::unique_ptr<Coordinator> coordinator_;
  std::thread loop_;
  absl::Status status_;
};

}  // namespace bulkhead
