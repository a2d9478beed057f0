// Sums between nodes in bf16: the bits that are promised, on every rank, in half the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/local/local_group.h"
#include "comm/tree/tree_communicator.h"
#include "memory/bf16.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using Nodes = std::vector<int>;  // of each rank

// By recursive doubling over one, two and three distances; and by sending everything to all.
const Nodes kLayouts[] = {
    {0, 1},    {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 1},
    {0, 1, 2}, {0, 1, 0, 1}, {0, 0, 0, 0, 1, 1, 2, 3}};

class RoundedSumsTest : public testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Layouts, RoundedSumsTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) {
                           std::string name = "nodes";
                           for (const int node : info.param) absl::StrAppend(&name, "_", node);
                           return name;
                         });

float Rounded(float x) { return F32OfBf16(Bf16OfF32(x)); }

using Partials = std::vector<std::vector<float>>;  // by rank

Partials PartialsOf(uint64_t seed, size_t size, int64_t elements) {
  Partials partials;
  for (size_t r = 0; r < size; ++r) {
    partials.push_back(MakePartialSum(seed, static_cast<int>(r), elements));
  }
  return partials;
}

// Element i of the sum of the ranks [begin, end), as a node sends it: subtrees of single nodes are
// rounded and, with recursive doubling, everything else but the whole.
float Sent(const Nodes& nodes, const Partials& partials, int begin, int end, int64_t i) {
  const bool one_node =
      std::count(nodes.begin() + begin, nodes.begin() + end, nodes[begin]) == end - begin;
  if (one_node) return Rounded(TreeOf(partials, begin, end, i));
  const int middle = begin + (end - begin + 1) / 2;
  const float sum = Sent(nodes, partials, begin, middle, i) + Sent(nodes, partials, middle, end, i);
  const bool whole = end - begin == static_cast<int>(nodes.size());
  return UsesRecursiveDoubling(nodes) && !whole ? Rounded(sum) : sum;
}

// A rank's communicator whose sums are in bf16.
struct RoundingRank {
  RoundingRank(Group& group, int64_t elements, DType sum_dtype = DType::kBF16) {
    const CommLimits limits{.max_sum_elements = elements, .sum_dtype = sum_dtype};
    ledger.Claim(MemoryCategory::kCommunication,
                 CommunicationBytes(limits, group.exchange().topology().size));
    auto connected = group.Connect(limits, ledger);
    EXPECT_TRUE(connected.ok()) << connected.status();
    comm = *std::move(connected);
    ledger.Seal();
  }
  void Put(const std::vector<float>& partial) {
    std::copy(partial.begin(), partial.end(),
              comm->PartialSum(1, static_cast<int64_t>(partial.size())).F32());
  }

  std::unique_ptr<Device> device = NewHostDevice(0);
  MemoryLedger ledger{*device};
  std::unique_ptr<Communicator> comm;
};

TEST_P(RoundedSumsTest, HaveThePromisedBitsOnEveryRank) {
  const Nodes& nodes = GetParam();
  for (const int64_t most : {200, 6000, 30'000}) {  // all small; some large
    std::vector<Partials> partials;                 // by round
    std::vector<std::vector<float>> expected;
    for (const int64_t elements : {int64_t{1}, int64_t{7}, std::min<int64_t>(1023, most), most}) {
      partials.push_back(PartialsOf(elements, nodes.size(), elements));
      std::vector<float>& sum = expected.emplace_back(elements);
      for (int64_t i = 0; i < elements; ++i) {
        sum[i] = Sent(nodes, partials.back(), 0, static_cast<int>(nodes.size()), i);
      }
    }
    RunRanksOf(NewLocalNodes(nodes), [&](Group& group) {
      RoundingRank rank(group, most);
      for (size_t round = 0; round < partials.size(); ++round) {
        rank.Put(partials[round][rank.comm->rank()]);
        const auto sum = rank.comm->AllReduceSum();
        ASSERT_TRUE(sum.ok()) << sum.status();
        ASSERT_TRUE(SameBits(sum->F32(), expected[round])) << expected[round].size() << " elements";
      }
    });
  }
}

TEST_P(RoundedSumsTest, AreAsNearAsBf16IsToTheSumInF32WhichCanBeHadToo) {
  constexpr int64_t kElements = 5000;
  const auto size = static_cast<int>(GetParam().size());
  const Partials partials = PartialsOf(3, size, kElements);
  const std::vector<float> exact = ExpectedSum(3, size, kElements);
  RunRanksOf(NewLocalNodes(GetParam()), [&](Group& group) {
    RoundingRank rank(group, kElements);
    rank.Put(partials[rank.comm->rank()]);
    const auto sum = rank.comm->AllReduceSum();
    ASSERT_TRUE(sum.ok()) << sum.status();
    int different = 0;
    for (int64_t i = 0; i < kElements; ++i) {
      double magnitude = 0;
      for (const std::vector<float>& partial : partials) magnitude += std::abs(partial[i]);
      // At most three roundings of a part, each to 8 bits.
      ASSERT_LE(std::abs(sum->F32()[i] - exact[i]), magnitude * 3 * 0x1p-8 * 1.01) << i;
      if (sum->F32()[i] != exact[i]) ++different;
    }
    EXPECT_GT(different, kElements / 2);
    rank.Put(partials[rank.comm->rank()]);
    const auto in_f32 = rank.comm->AllReduceSumF32();
    ASSERT_TRUE(in_f32.ok()) << in_f32.status();
    EXPECT_TRUE(SameBits(in_f32->F32(), exact));
  });
}

TEST_P(RoundedSumsTest, LeaveBroadcastsWhole) {
  RunRanksOf(NewLocalNodes(GetParam()), [&](Group& group) {
    RoundingRank rank(group, 8);
    std::vector<int32_t> values = {0x12345678, -1, 65537, 258};
    const std::vector<int32_t> sent = values;
    if (rank.comm->rank() != 0) std::fill(values.begin(), values.end(), 7);
    ASSERT_TRUE(rank.comm->Broadcast(values.data(), 4).ok());
    EXPECT_EQ(values, sent);
  });
}

TEST_P(RoundedSumsTest, TakeHalfTheBytesBetweenNodes) {
  constexpr int64_t kElements = 5000;
  const auto bytes_of = [&](DType dtype) {
    std::atomic<int64_t> bytes = 0;
    RunRanksOf(NewLocalNodes(GetParam(), &bytes), [&](Group& group) {
      RoundingRank rank(group, kElements, dtype);
      rank.Put(MakePartialSum(1, rank.comm->rank(), kElements));
      EXPECT_TRUE(rank.comm->AllReduceSum().ok());
    });
    return bytes.load();
  };
  const int64_t in_f32 = bytes_of(DType::kF32);
  EXPECT_GE(in_f32, 2 * kElements * 4);
  EXPECT_EQ(bytes_of(DType::kBF16) * 2, in_f32);
}

TEST(RoundedSums, AreNotThoseOfRanksThatShareAHost) {
  constexpr int64_t kElements = 3000;
  RunRanks(3, [&](Group& group) {
    RoundingRank rank(group, kElements);
    rank.Put(MakePartialSum(5, rank.comm->rank(), kElements));
    const auto sum = rank.comm->AllReduceSum();
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_TRUE(SameBits(sum->F32(), ExpectedSum(5, 3, kElements)));
  });
}

}  // namespace
}  // namespace bulkhead
