// Sums between two devices of one process, a thread each: on a GPU, two streams of it. Their
// kernels have to run at once, so few blocks wait: the rows that are normed are few.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/peer_sum.h"
#include "tests/comm/terms.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/peers_under_test.h"

namespace bulkhead {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kMaxElements = 8192;
constexpr int64_t kSharedBytes = int64_t{2} << 20;  // a granule
constexpr int64_t kStateAt = kPeerBuffers * (kRanks - 1) * kMaxElements * 4;

struct SumCase {
  int64_t rows = 0;
  int64_t cols = 0;
  bool normed = false;
};

class PeerUnderTest {
 public:
  PeerUnderTest(std::unique_ptr<CudaDriver> driver, int rank)
      : cuda_(std::move(driver)), arrays_(*cuda_.driver), rank_(rank) {
    own_ = PeersOf(*cuda_.driver).AllocateShared(kSharedBytes).value();
    cuda_.driver->Fill(own_, std::byte{kNothingCame & 0xFF}, kSharedBytes);
    cuda_.driver->Fill(own_ + kStateAt, std::byte{0}, kPeerStates * 16);
    x_ = arrays_.New<float>(kMaxElements);
    hidden_ = arrays_.New<float>(kMaxElements);
    normed_ = arrays_.New<float>(kMaxElements);
    weight_ = arrays_.Put(MakePartialSum(101, 0, kMaxPeerNormCols));
  }
  ~PeerUnderTest() { PeersOf(*cuda_.driver).FreeShared(own_); }
  PeerUnderTest(const PeerUnderTest&) = delete;
  PeerUnderTest& operator=(const PeerUnderTest&) = delete;

  void Connect(PeerUnderTest& other) {
    sums_ = {.rank = rank_, .size = kRanks, .max_elements = kMaxElements};
    sums_.received[rank_] = sums_.own = reinterpret_cast<uint32_t*>(own_);
    sums_.received[other.rank_] = reinterpret_cast<uint32_t*>(other.own_);
    sums_.state = reinterpret_cast<uint32_t*>(own_ + kStateAt);
    sums_.limit_ns = int64_t{20} * 1000 * 1000 * 1000;  // fails instead of waiting for ever
  }

  // Sums, and then the sum once more, with nothing in between.
  void SumTwice(uint64_t seed, int64_t elements) {
    Write(x_, MakePartialSum(seed, rank_, elements));
    PeerSum(*cuda_.driver, sums_, x_, elements);
    PeerSum(*cuda_.driver, sums_, x_, elements);
    std::vector<float> expected = ExpectedSum(seed, kRanks, elements);
    for (float& value : expected) value *= kRanks;
    ASSERT_TRUE(SameBits(arrays_.Get(x_, elements).data(), expected)) << elements << " elements";
  }

  // The bits of a sum and of AddResidualNorm behind it.
  void SumNorm(uint64_t seed, int64_t rows, int64_t cols) {
    const int64_t elements = rows * cols;
    const ResidualNorm norm{.factor = 0.75F,
                            .hidden = View(hidden_, rows, cols),
                            .weight = View(weight_, 1, cols),
                            .epsilon = 1e-5F,
                            .normed = View(normed_, rows, cols)};
    Write(x_, ExpectedSum(seed, kRanks, elements));
    Write(hidden_, MakePartialSum(seed, 100, elements));
    cuda_.backend->AddResidualNorm(View(x_, rows, cols), norm.bias, norm.factor, norm.hidden,
                                   norm.weight, norm.epsilon, norm.normed);
    const std::vector<float> hidden = arrays_.Get(hidden_, elements);
    const std::vector<float> normed = arrays_.Get(normed_, elements);
    Write(x_, MakePartialSum(seed, rank_, elements));
    Write(hidden_, MakePartialSum(seed, 100, elements));
    PeerSumNorm(*cuda_.driver, sums_, View(x_, rows, cols), norm);
    ASSERT_TRUE(SameBits(arrays_.Get(hidden_, elements).data(), hidden)) << rows << " x " << cols;
    ASSERT_TRUE(SameBits(arrays_.Get(normed_, elements).data(), normed)) << rows << " x " << cols;
  }

 private:
  void Write(float* to, const std::vector<float>& values) {
    cuda_.driver->CopyToDevice(values.data(), reinterpret_cast<std::byte*>(to),
                               static_cast<int64_t>(values.size()) * 4);
    ASSERT_TRUE(cuda_.driver->Synchronize().ok()) << cuda_.driver->Synchronize();
  }
  static MatrixView View(float* at, int64_t rows, int64_t cols) {
    return MatrixView(reinterpret_cast<std::byte*>(at), DType::kF32, rows, cols);
  }

  CudaUnderTest cuda_;
  DeviceArrays arrays_;
  const int rank_;
  std::byte* own_ = nullptr;
  float* x_ = nullptr;
  float* hidden_ = nullptr;
  float* normed_ = nullptr;
  float* weight_ = nullptr;
  PeerSums sums_;
};

// Each clears behind a sum of another length, of either kind, and each buffer has several.
TEST(PeerSumsTest, OfTwoDevicesHaveTheBitsOfTheirOrderAndOfANormBehindThem) {
  constexpr SumCase kCases[] = {{1, 4},          {4, 1024, true}, {1, 7},       {8, 1024},
                                {2, 2052, true}, {1, 1001},       {8, 1024},    {8, 36, true},
                                {1, 8192, true}, {3, 100},        {5, 64, true}};
  std::vector<std::unique_ptr<CudaDriver>> first = DevicesUnderTest(/*few=*/true);
  std::vector<std::unique_ptr<CudaDriver>> second = DevicesUnderTest(/*few=*/true);
  for (size_t i = 0; i < first.size(); ++i) {
    PeerUnderTest a(std::move(first[i]), 0);
    PeerUnderTest b(std::move(second[i]), 1);
    a.Connect(b);
    b.Connect(a);
    const auto run = [&](PeerUnderTest& peer) {
      uint64_t seed = 0;
      for (const SumCase& c : kCases) {
        if (c.normed) {
          peer.SumNorm(++seed, c.rows, c.cols);
        } else {
          peer.SumTwice(++seed, c.rows * c.cols);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    };
    std::thread other([&] { run(b); });
    run(a);
    other.join();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace bulkhead
