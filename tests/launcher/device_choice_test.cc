#include "launcher/device_choice.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "comm/local/local_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/nvidia_driver.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

const absl::Status kNoDriver = absl::UnavailableError("there is no CUDA driver");
const absl::Status kNoNccl = absl::UnavailableError("NCCL is not found");

DevicesFound Gpus(int count, absl::StatusOr<int> nccl = 22809) {
  std::vector<CudaDeviceIdentity> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back({"H200", absl::StrCat("GPU-", i), ""});
  return {gpus, std::move(nccl)};
}

// The result on every rank of a group of `size`, where rank r finds found(r).
std::vector<absl::StatusOr<RankDevice>> ChooseAll(const EngineOptions& options, int size,
                                                  const std::function<DevicesFound(int)>& found) {
  std::vector<absl::StatusOr<RankDevice>> all(size, absl::UnknownError("not run"));
  RunRanks(size, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    all[rank] = ChooseDevice(
        options, group.exchange(), [&] { return found(rank); }, absl::Minutes(1));
  });
  return all;
}

// The refusal that all ranks agree on.
absl::Status RefusalOf(const std::vector<absl::StatusOr<RankDevice>>& all) {
  for (const auto& one : all) {
    EXPECT_EQ(one.status().code(), all[0].status().code());
    EXPECT_EQ(one.status().message(), all[0].status().message());
    EXPECT_TRUE(IsAgreed(one.status()));
  }
  return all[0].status();
}

TEST(DeviceOptionTest, ALibraryMultipliesWhereEveryRankHasOne) {
  const auto found = [](int rank, int without) {
    DevicesFound gpus = Gpus(3);
    if (rank != without) gpus.gemm_library = "cuBLASLt 13.1.0";
    return gpus;
  };
  for (const auto& rank : ChooseAll({}, 3, [&](int r) { return found(r, -1); })) {
    EXPECT_TRUE(rank->gemm_library);
    EXPECT_EQ(rank->products, "cuBLASLt 13.1.0");
  }
  for (const auto& rank : ChooseAll({}, 3, [&](int r) { return found(r, 1); })) {
    EXPECT_FALSE(rank->gemm_library);
    EXPECT_THAT(rank->products, HasSubstr("our own kernels, since rank 1 (host "));
    EXPECT_THAT(rank->products, HasSubstr("not checked"));
  }
}

TEST(DeviceOptionTest, EveryRankTakesTheGpuOfItsLocalRankAndNcclWhereItIs) {
  const auto all = ChooseAll({}, 3, [](int) { return Gpus(4); });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(all[rank].ok()) << all[rank].status();
    EXPECT_TRUE(all[rank]->cuda);
    EXPECT_EQ(all[rank]->ordinal, rank);
    EXPECT_EQ(all[rank]->identity.uuid, absl::StrCat("GPU-", rank));
    EXPECT_EQ(all[rank]->sharers, 1);
    EXPECT_TRUE(all[rank]->first_sharer);
    EXPECT_EQ(all[rank]->transport, Transport::kNccl);
    EXPECT_EQ(all[rank]->text, "H200, sums by NCCL 22809");
  }
}

TEST(DeviceOptionTest, AGpuWhoseDriverIsTooOldIsNoReasonToTakeTheCpu) {
  const auto found = [](int rank) -> DevicesFound {
    if (rank == 0) return {absl::UnavailableError("no device"), kNoNccl};
    return {absl::FailedPreconditionError("driver 535.104.05 is too old, 580 is needed"), kNoNccl};
  };
  for (const DeviceOption device : {DeviceOption::kAuto, DeviceOption::kCuda}) {
    EngineOptions options;
    options.device = device;
    const absl::Status refused = RefusalOf(ChooseAll(options, 2, found));
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--device cpu"));
    if (device == DeviceOption::kCuda) continue;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 1 (host "));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("driver 535.104.05 is too old"));
  }
  EngineOptions cpu;
  cpu.device = DeviceOption::kCpu;
  for (const auto& rank : ChooseAll(cpu, 2, found)) EXPECT_FALSE(rank->cuda);
}

TEST(DeviceOptionTest, WithoutNcclOnOneRankAllAreStagedAndItIsSaidWhy) {
  const auto all =
      ChooseAll({}, 2, [](int rank) { return rank == 1 ? Gpus(2, kNoNccl) : Gpus(2); });
  for (const auto& one : all) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->transport, Transport::kStaged);
    EXPECT_THAT(one->text, HasSubstr("since rank 1 (host "));
    EXPECT_THAT(one->text, HasSubstr("NCCL is not found"));
  }
  EngineOptions nccl;
  nccl.comm = CommOption::kNccl;
  const absl::Status refused = RefusalOf(
      ChooseAll(nccl, 2, [](int rank) { return rank == 1 ? Gpus(2, kNoNccl) : Gpus(2); }));
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--comm nccl: rank 1 (host "));
}

TEST(DeviceOptionTest, WhereOneRankHasNoGpuAutoIsTheCpuForAllAndCudaIsRefused) {
  const auto found = [](int rank) {
    return rank == 2 ? DevicesFound{kNoDriver, kNoDriver} : Gpus(3);
  };
  for (const auto& one : ChooseAll({}, 3, found)) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_FALSE(one->cuda);
    EXPECT_EQ(one->transport, Transport::kShared);
    EXPECT_THAT(one->text, HasSubstr("CPU, since rank 2 (host "));
    EXPECT_THAT(one->text, HasSubstr("there is no CUDA driver"));
  }
  EngineOptions cuda;
  cuda.device = DeviceOption::kCuda;
  const absl::Status refused = RefusalOf(ChooseAll(cuda, 3, found));
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("use --device cpu"));
}

TEST(DeviceOptionTest, TheCpuIsNewsToABuildThatLookedForAGpu) {
  const auto news = [](const EngineOptions& options, const DevicesFound& found) {
    return ChooseAll(options, 1, [&](int) { return found; })[0]->level == LogLevel::kInfo;
  };
  EngineOptions cpu;
  cpu.device = DeviceOption::kCpu;
  EXPECT_TRUE(news({}, {kNoDriver, kNoDriver}));
  EXPECT_FALSE(news({}, Gpus(1)));
  EXPECT_FALSE(news(cpu, {kNoDriver, kNoDriver}));
  const absl::Status no_cuda = absl::UnimplementedError("this build has no CUDA");
  EXPECT_EQ(news({}, {no_cuda, no_cuda}), !NvidiaDriverVersion().empty());
}

TEST(DeviceOptionTest, TheCpuThatIsAskedForLooksForNoGpu) {
  EngineOptions cpu;
  cpu.device = DeviceOption::kCpu;
  const auto all = ChooseAll(cpu, 2, [](int) {
    ADD_FAILURE() << "looked";
    return Gpus(2);
  });
  ASSERT_TRUE(all[0].ok()) << all[0].status();
  EXPECT_EQ(all[0]->text, "CPU");
  cpu.comm = CommOption::kStaged;
  const absl::Status refused = RefusalOf(ChooseAll(cpu, 2, [](int) { return Gpus(2); }));
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--comm staged is for GPUs"));
}

TEST(DeviceOptionTest, ItIsSaidWhichSumsAreRounded) {
  EngineOptions options;
  const auto rounded = [&](const DevicesFound& found) {
    return ChooseAll(options, 2, [&](int) { return found; })[1]->rounded_sums;
  };
  EXPECT_EQ(rounded(Gpus(2)), "");
  options.all_reduce_dtype = DType::kBF16;
  EXPECT_EQ(rounded(Gpus(2)), "those of NCCL");
  EXPECT_EQ(rounded(Gpus(2, kNoNccl)), "none, since all ranks share their host's memory");
  EXPECT_EQ(rounded({kNoDriver, kNoDriver}), "none, since all ranks share their host's memory");
  RunRanksOf(NewLocalNodes({0, 1}), [&](Group& group) {
    const auto choice = ChooseDevice(
        options, group.exchange(),
        [] {
          return DevicesFound{kNoDriver, kNoDriver};
        },
        absl::Minutes(1));
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->rounded_sums, "those between hosts");
  });
}

TEST(DeviceOptionTest, RanksThatWouldShareAGpuAreNamedAndRefused) {
  const absl::Status refused = RefusalOf(ChooseAll({}, 3, [](int) { return Gpus(2); }));
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ranks 0 and 2 would share one GPU, H200"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("GPU-0"));
  EngineOptions nccl;
  nccl.comm = CommOption::kNccl;
  EXPECT_FALSE(ChooseAll(nccl, 3, [](int) { return Gpus(2, 22809); })[0].ok());
  EXPECT_TRUE(ChooseAll(nccl, 3, [](int) { return Gpus(2, 23000); })[0].ok());
}

TEST(DeviceOptionTest, StagedRanksMayShareAGpuAndOneOfThemLocksIt) {
  EngineOptions staged;
  staged.comm = CommOption::kStaged;
  const auto all = ChooseAll(staged, 3, [](int) { return Gpus(2); });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(all[rank].ok()) << all[rank].status();
    EXPECT_EQ(all[rank]->ordinal, rank % 2);
    EXPECT_EQ(all[rank]->sharers, rank == 1 ? 1 : 2);
    EXPECT_EQ(all[rank]->first_sharer, rank < 2);
    EXPECT_EQ(all[rank]->transport, Transport::kStaged);
  }
}

}  // namespace
}  // namespace bulkhead
