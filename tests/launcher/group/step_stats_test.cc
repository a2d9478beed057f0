#include "launcher/group/step_stats.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/staged/staged_communicator.h"
#include "gtest/gtest.h"
#include "memory/cuda_device.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

void Spin(absl::Duration duration) {
  const absl::Time end = MonotonicNow() + duration;
  while (MonotonicNow() < end) {
  }
}

class SlowCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  MatrixView PartialSum(int64_t /*rows*/, int64_t /*cols*/) override { return {}; }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    Spin(absl::Milliseconds(2));
    return ConstMatrixView();
  }
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override {
    ++sums_in_f32;
    return AllReduceSum();
  }
  bool NormsSum(int64_t rows, int64_t cols) const override { return rows == 2 && cols == 3; }
  void AllReduceSumNorm(const ResidualNorm& norm) override {
    Spin(absl::Milliseconds(2));
    factor = norm.factor;
  }
  absl::Status GatherCols(ConstMatrixView /*part*/, absl::Span<const int64_t> /*cols*/,
                          MatrixView /*out*/) override {
    Spin(absl::Milliseconds(2));
    return absl::OkStatus();
  }
  float factor = 0;
  int sums_in_f32 = 0;
};

class SummingRunner final : public StepRunner {
 public:
  explicit SummingRunner(Communicator& comm) : comm_(comm) {}
  absl::Status Submit(Step /*step*/) override {
    Spin(absl::Milliseconds(3));
    return comm_.AllReduceSum().status();
  }
  absl::StatusOr<StepResult> Collect() override {
    if (absl::Status gathered = comm_.GatherCols({}, {}, {}); !gathered.ok()) return gathered;
    return StepResult();
  }

 private:
  Communicator& comm_;
};

TEST(StepStatsTest, SumsAreNormedByTheCommunicatorThatIsMeasured) {
  auto slow = std::make_unique<SlowCommunicator>();
  const SlowCommunicator& inner = *slow;
  TimedCommunicator comm(std::move(slow));
  EXPECT_TRUE(comm.NormsSum(2, 3));
  EXPECT_FALSE(comm.NormsSum(3, 2));
  comm.AllReduceSumNorm({.factor = 5});
  EXPECT_EQ(inner.factor, 5);
  EXPECT_GE(comm.seconds(), 0.002);
}

TEST(StepStatsTest, SumsInF32AreThoseOfTheCommunicatorThatIsMeasured) {
  auto slow = std::make_unique<SlowCommunicator>();
  const SlowCommunicator& inner = *slow;
  TimedCommunicator comm(std::move(slow));
  ASSERT_TRUE(comm.AllReduceSum().ok());
  EXPECT_EQ(inner.sums_in_f32, 0);
  ASSERT_TRUE(comm.AllReduceSumF32().ok());
  EXPECT_EQ(inner.sums_in_f32, 1);
  EXPECT_GE(comm.seconds(), 0.004);
}

TEST(StepStatsTest, AStepsTimeIsToldByKindAndTheOtherRanksPartOfIt) {
  TimedCommunicator comm(std::make_unique<SlowCommunicator>());
  SummingRunner summing(comm);
  ASSERT_TRUE(comm.AllReduceSum().ok());  // before any step, as in a warm-up
  RankFigures figures;
  InstrumentedStepRunner runner(summing, comm, 0, figures, nullptr);
  Step decode;
  decode.plan.add_num_tokens(1);
  decode.plan.add_num_tokens(1);
  Step mixed = decode;
  mixed.plan.add_num_tokens(2);
  ASSERT_TRUE(RunStep(runner, decode).ok());
  ASSERT_TRUE(RunStep(runner, decode).ok());
  ASSERT_TRUE(RunStep(runner, mixed).ok());
  EXPECT_EQ(figures.decode().steps(), 2);
  EXPECT_EQ(figures.prefill().steps(), 1);
  EXPECT_GE(figures.decode().comm_s(), 0.008);
  EXPECT_GE(figures.decode().total_s() - figures.decode().comm_s(), 0.006);
  EXPECT_GE(figures.prefill().comm_s(), 0.004);
  EXPECT_LE(figures.prefill().comm_s(), comm.seconds() - 0.010);  // of its own step only
}

class IdleRunner final : public StepRunner {
 public:
  absl::Status Submit(Step /*step*/) override { return absl::OkStatus(); }
  absl::StatusOr<StepResult> Collect() override {
    Spin(absl::Microseconds(50));
    return StepResult();
  }
};

TEST(StepStatsTest, RanksTellEachOtherNowAndThen) {
  constexpr int kRanks = 3;
  constexpr int64_t kElements = 64;
  std::vector<RankFigures> figures(kRanks);
  RankStepStats board(kRanks);
  RunRanks(kRanks, [&](Group& group) {
    const std::unique_ptr<Device> device = NewHostDevice(0);
    MemoryLedger ledger(*device);
    const CommLimits limits{kElements, 0};
    ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, kRanks));
    absl::StatusOr<std::unique_ptr<Communicator>> connected = group.Connect(limits, ledger);
    ASSERT_TRUE(connected.ok()) << connected.status();
    TimedCommunicator comm(*std::move(connected));
    const int rank = comm.rank();
    IdleRunner idle;
    InstrumentedStepRunner runner(idle, comm, kElements, figures[rank],
                                  rank == 0 ? &board : nullptr);
    Step step;
    step.plan.add_num_tokens(1);
    for (uint64_t seq = 1; seq <= 2 * InstrumentedStepRunner::kShareEverySteps; ++seq) {
      if (rank == 0 && seq == InstrumentedStepRunner::kShareEverySteps) {
        EXPECT_EQ(board.Get()[1].decode().steps(), 0);
      }
      step.plan.set_seq(seq);
      ASSERT_TRUE(RunStep(runner, step).ok());
    }
  });
  const std::vector<RankFigures> told = board.Get();
  ASSERT_EQ(told.size(), size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(told[rank].decode().steps(), int64_t{2 * InstrumentedStepRunner::kShareEverySteps});
    EXPECT_GT(figures[rank].decode().total_s(), 0);
    EXPECT_NEAR(told[rank].decode().total_s(), figures[rank].decode().total_s(),
                1e-5 * figures[rank].decode().total_s());
    EXPECT_EQ(told[rank].prefill().steps(), 0);
  }
}

// A late queue runs one piece of work with each look at it.
constexpr uint64_t kStepsUntilTold = 4;

// Each rank's GPU is emulated, and this thread cannot access its memory.
TEST(StepStatsTest, RanksTellRankZeroWhatTheirGpusHaveFree) {
  constexpr int kRanks = 2;
  constexpr int64_t kSealed = (int64_t{140} << 30) + 4097;
  RankStepStats board(kRanks);
  RunRanks(kRanks, [&](Group& group) {
    emulator::EmulatedCudaDriver driver({.guarded = true, .late = true});
    const std::unique_ptr<CudaDevice> device = *CudaDevice::New(driver, 0);
    MemoryLedger ledger(*device);
    const CommLimits limits{64, 0, Transport::kStaged};
    ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, kRanks));
    auto connected = ConnectStaged(group, limits, *device, ledger);
    ASSERT_TRUE(connected.ok()) << connected.status();
    TimedCommunicator comm(*std::move(connected));
    const int rank = comm.rank();
    DeviceWatch watch({.device = "a GPU",
                       .free_bytes = [rank] { return kSealed - 1000 - rank; },
                       .others = [] { return ""; },
                       .period = absl::InfiniteDuration()},
                      kSealed + rank);
    (void)watch.Look();
    const HostBuffer pinned = *device->AllocateHost(StepFiguresBytes(kRanks));
    IdleRunner idle;
    RankFigures figures;
    InstrumentedStepRunner runner(idle, comm, 64, figures, rank == 0 ? &board : nullptr,
                                  device.get(), pinned.get(), &watch);
    Step step;
    step.plan.add_num_tokens(1);
    for (uint64_t seq = 1; seq <= InstrumentedStepRunner::kShareEverySteps + kStepsUntilTold;
         ++seq) {
      step.plan.set_seq(seq);
      ASSERT_TRUE(RunStep(runner, step).ok());
    }
  });
  const std::vector<DeviceWatchReading> told = board.Devices();
  ASSERT_EQ(told.size(), size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(told[rank].free_bytes, kSealed - 1000 - rank);
    EXPECT_EQ(told[rank].sealed_free_bytes, kSealed + rank);
    EXPECT_EQ(told[rank].least_free_bytes, kSealed - 1000 - rank);
    EXPECT_EQ(board.Get()[rank].decode().steps(), 0);
  }
}

// One rank's sums, in its device's memory.
class OnDevice final : public Communicator {
 public:
  explicit OnDevice(Device& device) : buffer_(*device.Allocate(1024)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    sum_ = MatrixView(buffer_.data(), DType::kF32, rows, cols);
    return sum_;
  }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override { return ConstMatrixView(sum_); }
  absl::Status GatherCols(ConstMatrixView, absl::Span<const int64_t>, MatrixView) override {
    return absl::UnimplementedError("");
  }

 private:
  Buffer buffer_;
  MatrixView sum_;
};

TEST(StepStatsTest, NothingWaitsForTheSumOfAGpu) {
  emulator::EmulatedCudaDriver driver({.guarded = true, .late = true});
  const std::unique_ptr<CudaDevice> device = *CudaDevice::New(driver, 0);
  TimedCommunicator comm(std::make_unique<OnDevice>(*device));
  const HostBuffer pinned = *device->AllocateHost(StepFiguresBytes(1));
  DeviceWatch watch({.device = "a GPU",
                     .free_bytes = [] { return int64_t{5}; },
                     .others = [] { return ""; },
                     .period = absl::InfiniteDuration()},
                    9);
  (void)watch.Look();
  RankStepStats board(1);
  IdleRunner idle;
  RankFigures figures;
  InstrumentedStepRunner runner(idle, comm, 64, figures, &board, device.get(), pinned.get(),
                                &watch);
  Step step;
  step.plan.add_num_tokens(1);
  const auto run = [&](uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      step.plan.set_seq(step.plan.seq() + 1);
      ASSERT_TRUE(RunStep(runner, step).ok());
    }
  };
  run(InstrumentedStepRunner::kShareEverySteps);
  EXPECT_EQ(board.Devices()[0].free_bytes, 0);
  run(kStepsUntilTold);
  EXPECT_EQ(board.Devices()[0].free_bytes, 5);
  // Behind a step that does not end: whoever waits is told so.
  run(InstrumentedStepRunner::kShareEverySteps - kStepsUntilTold - 1);
  driver.EnqueueEndless();
  run(1 + kStepsUntilTold);
}

TEST(StepStatsTest, ACommunicatorThatIsTooSmallIsLeftAlone) {
  TimedCommunicator comm(std::make_unique<SlowCommunicator>());
  IdleRunner idle;
  RankFigures figures;
  InstrumentedStepRunner runner(idle, comm, 3, figures, nullptr);
  Step step;
  step.plan.set_seq(InstrumentedStepRunner::kShareEverySteps);
  ASSERT_TRUE(RunStep(runner, step).ok());
  EXPECT_EQ(comm.seconds(), 0);
}

}  // namespace
}  // namespace bulkhead
