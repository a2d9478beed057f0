// One-shot sums that are added to a residual stream and normed in the same pass: the bits of a sum
// and of Backend::AddResidualNorm behind it.
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/registered_kernels.h"
#include "tests/comm/one_shot/one_shot_rank.h"
#include "tests/comm/terms.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using emulator::Schedule;

struct Case {
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF32;  // of the norms
  bool has_bias = false;
};

using Bytes = std::vector<std::byte>;

// The arrays of an AddResidualNorm, on a device.
class NormArrays {
 public:
  NormArrays(CudaDriver& driver, const Case& c) : driver_(driver), arrays_(driver), case_(c) {
    norm_.factor = 0.75F;
    norm_.epsilon = 1e-5F;
    norm_.hidden = NewF32(c.rows, 100);
    norm_.weight = NewF32(1, 101, 1e-6F);  // so that no norm is beyond f16
    if (c.has_bias) norm_.bias = NewF32(1, 102);
    norm_.normed = MatrixView(reinterpret_cast<std::byte*>(
                                  arrays_.New<uint16_t>(c.rows * c.cols * DTypeBytes(c.dtype) / 2)),
                              c.dtype, c.rows, c.cols);
  }
  const ResidualNorm& norm() const { return norm_; }
  MatrixView NewF32(int64_t rows, uint64_t seed, float scale = 1) {
    std::vector<float> values = MakePartialSum(seed, 0, rows * case_.cols);
    for (float& value : values) value *= scale;
    auto* const at = reinterpret_cast<std::byte*>(arrays_.New<float>(rows * case_.cols));
    driver_.CopyToDevice(values.data(), at, rows * case_.cols * 4);
    EXPECT_TRUE(driver_.Synchronize().ok());
    return MatrixView(at, DType::kF32, rows, case_.cols);
  }
  // The residual stream, then the norms.
  Bytes Results() {
    Bytes bytes(case_.rows * case_.cols * (4 + DTypeBytes(case_.dtype)));
    const int64_t hidden_bytes = case_.rows * case_.cols * 4;
    driver_.CopyToHost(norm_.hidden.data(), bytes.data(), hidden_bytes);
    driver_.CopyToHost(norm_.normed.data(), bytes.data() + hidden_bytes,
                       static_cast<int64_t>(bytes.size()) - hidden_bytes);
    EXPECT_TRUE(driver_.Synchronize().ok()) << driver_.Synchronize();
    return bytes;
  }

 private:
  CudaDriver& driver_;
  DeviceArrays arrays_;
  const Case case_;
  ResidualNorm norm_;
};

// Of the sum of `size` ranks' partial sums of that seed, by two kernels.
Bytes InTwoPasses(const Case& c, uint64_t seed, int size) {
  emulator::EmulatedCudaDriver driver({.total_bytes = int64_t{64} << 20});
  const std::unique_ptr<CudaDevice> device = *CudaDevice::New(driver, 0);
  const std::unique_ptr<Backend> backend = NewCudaBackend(*device, driver);
  NormArrays arrays(driver, c);
  const MatrixView sum = arrays.NewF32(c.rows, 0);
  const std::vector<float> values = ExpectedSum(seed, size, c.rows * c.cols);
  driver.CopyToDevice(values.data(), sum.data(), c.rows * c.cols * 4);
  const ResidualNorm& norm = arrays.norm();
  backend->AddResidualNorm(sum, norm.bias, norm.factor, norm.hidden, norm.weight, norm.epsilon,
                           norm.normed);
  return arrays.Results();
}

void WritePartial(OneShotRank& rank, uint64_t seed, int64_t rows, int64_t cols) {
  const std::vector<float> partial = MakePartialSum(seed, rank.comm().rank(), rows * cols);
  rank.driver().CopyToDevice(partial.data(), rank.comm().PartialSum(rows, cols).data(),
                             rows * cols * 4);
  EXPECT_TRUE(rank.driver().Synchronize().ok()) << rank.driver().Synchronize();
}

// The same by one.
Bytes InOnePass(OneShotRank& rank, const Case& c, uint64_t seed) {
  NormArrays arrays(rank.driver(), c);
  WritePartial(rank, seed, c.rows, c.cols);
  EXPECT_TRUE(rank.comm().NormsSum(c.rows, c.cols));
  rank.comm().AllReduceSumNorm(arrays.norm());
  return arrays.Results();
}

void ExpectSameBits(OneShotRank& rank, const Case& c, uint64_t seed, const Bytes& expected) {
  EXPECT_TRUE(InOnePass(rank, c, seed) == expected)
      << rank.comm().size() << " ranks, " << c.rows << " rows of " << c.cols << " in "
      << DTypeName(c.dtype);
}

// Each clears behind a sum of another length, of either kind.
void ExpectBitsOfTwoPasses(int size, const RankOptions& options, const std::vector<Case>& cases) {
  std::vector<Bytes> expected;
  for (size_t i = 0; i < cases.size(); ++i) expected.push_back(InTwoPasses(cases[i], i, size));
  RunRanks(size, [&](Group& group) {
    OneShotRank rank(group, options);
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    const int norms = rank.norms();
    const int sums = rank.sums();
    for (size_t i = 0; i < cases.size(); ++i) {
      ExpectSameBits(rank, cases[i], i, expected[i]);
      if (i % 2 == 0) continue;
      const int64_t elements = cases[i].rows * cases[i].cols - 1;
      const std::vector<float> partial = MakePartialSum(i, rank.comm().rank(), elements);
      EXPECT_TRUE(SameBits(rank.Sum(partial).data(), ExpectedSum(i, size, elements)));
    }
    EXPECT_EQ(rank.norms() - norms, static_cast<int>(cases.size()));
    EXPECT_EQ(rank.sums() - sums, static_cast<int>(cases.size() / 2));
  });
}

class NormedSumSchedules : public testing::TestWithParam<Schedule> {};
INSTANTIATE_TEST_SUITE_P(All, NormedSumSchedules, testing::ValuesIn(emulator::kAllSchedules));

TEST_P(NormedSumSchedules, HaveTheBitsOfTwoPasses) {
  for (const bool late : {false, true}) {
    RankOptions options;
    options.limits.max_sum_elements = 6000;
    options.device.schedule = GetParam();
    options.device.late = late;
    ExpectBitsOfTwoPasses(2, options,
                          {{.rows = 1, .cols = 4},
                           {.rows = 2, .cols = 2052, .dtype = DType::kBF16, .has_bias = true},
                           {.rows = 32, .cols = 36},
                           {.rows = 5, .cols = 64, .dtype = DType::kF16}});
  }
}

// Of a width, of rows, and of both.
TEST(NormedSumTest, TheLargestHaveTheBitsOfTwoPasses) {
  RankOptions options;
  options.limits.max_sum_elements = kMaxPeerSumElements + 8;
  ExpectBitsOfTwoPasses(2, options,
                        {{.rows = 1, .cols = kMaxPeerNormCols, .dtype = DType::kBF16},
                         {.rows = 8, .cols = kMaxPeerNormCols, .has_bias = true},
                         {.rows = kPeerBlocks, .cols = 2048},
                         {.rows = 1, .cols = 4096}});
}

TEST(NormedSumTest, SumsOfEveryGroupHaveTheBitsOfTwoPasses) {
  for (const int size : {3, 4, 5, 6, 7, 8}) {
    RankOptions options;
    options.limits.max_sum_elements = 5000;
    ExpectBitsOfTwoPasses(size, options,
                          {{.rows = 2, .cols = 100, .dtype = DType::kBF16},
                           {.rows = 1, .cols = 4100, .has_bias = true},
                           {.rows = 3, .cols = 8}});
  }
}

// What a kernel cannot norm is the same on every rank, whatever its memory is.
TEST(NormedSumTest, OtherShapesAreSummedAlone) {
  RunRanks(2, [](Group& group) {
    RankOptions options;
    options.limits.max_sum_elements = int64_t{1} << 20;
    OneShotRank rank(group, options);
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    const Communicator& comm = rank.comm();
    EXPECT_TRUE(comm.NormsSum(kPeerBlocks, 64));
    EXPECT_FALSE(comm.NormsSum(kPeerBlocks + 1, 64));
    EXPECT_TRUE(comm.NormsSum(8, kMaxPeerNormCols));
    EXPECT_FALSE(comm.NormsSum(9, kMaxPeerNormCols));
    EXPECT_FALSE(comm.NormsSum(1, kMaxPeerNormCols + 4));
    EXPECT_FALSE(comm.NormsSum(1, 66));
    EXPECT_FALSE(comm.NormsSum(0, 64));
  });
}

TEST(NormedSumTest, ANanOfAnyBitsIsANumberLikeOthers) {
  RunRanks(2, [](Group& group) {
    OneShotRank rank(group, {});
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    NormArrays arrays(rank.driver(), {.rows = 2, .cols = 8});
    const MatrixView partial = rank.comm().PartialSum(2, 8);
    rank.driver().Fill(partial.data(), std::byte{0}, 64);
    rank.driver().Fill(partial.data() + 4 * rank.comm().rank(), std::byte{0xFF}, 4);
    rank.comm().AllReduceSumNorm(arrays.norm());
    std::vector<float> values(32);
    const Bytes bytes = arrays.Results();
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (int i = 0; i < 16; ++i) EXPECT_EQ(std::isnan(values[i]), i < 2) << i;
    for (int i = 16; i < 32; ++i) EXPECT_EQ(std::isnan(values[i]), i < 24) << i;
  });
}

// The count of sums is on the device: a graph of both kinds, with others between its launches.
TEST(NormedSumTest, GraphsMayHoldThem) {
  constexpr Case kWide{.rows = 3, .cols = 900};
  constexpr Case kNarrow{.rows = 32, .cols = 8};
  const Bytes expected = InTwoPasses(kWide, 9, 2);
  RunRanks(2, [&](Group& group) {
    OneShotRank rank(group, {});
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    auto& driver = rank.driver();
    Communicator& comm = rank.comm();
    NormArrays arrays(driver, kNarrow);
    driver.Fill(arrays.norm().hidden.data(), std::byte{0}, 32 * 8 * 4);
    driver.BeginCapture();
    for (int i = 0; i < 2; ++i) {
      EnqueueRamp(driver, {comm.PartialSum(32, 8).F32(), 32 * 8, 0, 1000, comm.rank()});
      comm.AllReduceSumNorm(arrays.norm());
      EnqueueRamp(driver, {comm.PartialSum(1, 5).F32(), 5, 0, 1000, comm.rank()});
      ASSERT_TRUE(comm.AllReduceSum().ok());
    }
    const auto graph = driver.EndCapture();
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int round = 1; round <= 5; ++round) {
      driver.LaunchGraph(*graph);
      std::vector<float> hidden(32 * 8);
      const Bytes bytes = arrays.Results();
      std::memcpy(hidden.data(), bytes.data(), hidden.size() * 4);
      for (int i = 0; i < 32 * 8; ++i) {
        EXPECT_EQ(hidden[i], 2 * round * 0.75F * static_cast<float>(2 * i + 1)) << i;
      }
      ExpectSameBits(rank, kWide, 9, expected);
    }
    driver.FreeGraph(*graph);
  });
}

}  // namespace
}  // namespace bulkhead
