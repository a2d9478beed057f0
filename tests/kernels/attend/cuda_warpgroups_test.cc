// Attention of several tokens by the products of warpgroups, on devices of compute capability 9.0:
// as cuda_attend_test.cc has it for all.
#include <gtest/gtest.h>

#include "kernels/simd/number_format.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/paged_step.h"
#include "tests/kernels/variants.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr uint32_t kSeed = 20;

// Whole prompts, one shorter than a tile; pieces that cross the border of a tile, and of a block's
// columns; one whose context is cut in the middle of a tile.
std::vector<float> AttendToPieces(Backend& backend, const AttentionCase& c,
                                  DType dtype = DType::kF32) {
  PagedSequences sequences(backend, c, {300, 40, 611, 130, 77}, kSeed);
  sequences.Append({{0, 0, 120}, {2, 0, 340}, {3, 0, 126}});
  return sequences.AppendAndAttend(
      {{0, 120, 300}, {1, 0, 40}, {2, 340, 611}, {3, 126, 130}, {4, 0, 77}}, dtype);
}

AttentionCase Aligned(AttentionCase c) {
  c.row_padding = 4;
  return c;
}
std::vector<AttentionCase> Cases() {
  const auto groups = AttentionCase::Groups;
  return {Aligned({groups(1, 4), 1, 128, KvFormat::kBF16, 16, 0}),
          Aligned({groups(2, 1), 2, 64, KvFormat::kF16, 64, 0}),
          Aligned({groups(1, 3), 1, 64, KvFormat::kBF16, 32, 100, 0, true}),  // 126 of 128 columns
          Aligned({groups(1, 2), 1, 128, KvFormat::kF16, 256, 0, 0, true, 150}),
          Aligned({groups(1, 4), 1, 128, KvFormat::kFP8, 16, 0}),
          Aligned({groups(2, 3), 2, 64, KvFormat::kFP8, 64, 100, 0, true}),
          Aligned({groups(2, 1), 2, 128, KvFormat::kInt8, 32, 0}),
          Aligned({groups(1, 2), 1, 64, KvFormat::kInt8, 256, 0, 0, true, 150}),
          Aligned({groups(1, 3), 1, 128, KvFormat::kInt4, 16, 100}),
          Aligned({groups(2, 2), 2, 64, KvFormat::kInt4, 128, 0, 0, true})};
}

class CudaWarpgroupsCase : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(/*few=*/false, true, 9)) {
      devices_.emplace_back(std::move(driver));
    }
    if (devices_.empty()) GTEST_SKIP() << "no device of compute capability 9.0";
  }
  std::vector<CudaUnderTest> devices_;
};
INSTANTIATE_TEST_SUITE_P(Cases, CudaWarpgroupsCase, testing::ValuesIn(Cases()));

TEST_P(CudaWarpgroupsCase, IsThatOfTheReferenceInEverySchedule) {
  const AttentionCase& c = GetParam();
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::vector<float> want = AttendToPieces(*NewReferenceBackend(*host), c);
  std::vector<float> first;
  for (CudaUnderTest& cuda : devices_) {
    const std::vector<float> out = AttendToPieces(*cuda.backend, c);
    if (first.empty()) first = out;
    ExpectSameBits(out, first);
  }
  const bool in_bf16 = c.format == KvFormat::kBF16 || c.format == KvFormat::kFP8;
  EXPECT_LT(RelativeError(first, want), in_bf16 ? 4e-3 : 6e-4);
}

TEST_P(CudaWarpgroupsCase, ForProductsIsTheOthersRounded) {
  std::vector<float> want = AttendToPieces(*devices_[0].backend, GetParam());
  for (float& x : want) x = F32OfBf16(Bf16OfF32(x));
  ExpectSameBits(AttendToPieces(*devices_[0].backend, GetParam(), DType::kBF16), want);
}

TEST_P(CudaWarpgroupsCase, HasRowsThatDoNotDependOnTheOthers) {
  const AttentionCase& c = GetParam();
  const size_t width = c.num_heads() * c.head_dim;
  const auto rows_of = [&](const std::vector<Piece>& step, int first, int count) {
    PagedSequences sequences(*devices_[0].backend, c, {300, 40, 150}, kSeed);
    sequences.Append({{2, 0, 87}});
    const std::vector<float> out = sequences.AppendAndAttend(step);
    return std::vector<float>(out.begin() + first * width, out.begin() + (first + count) * width);
  };
  const std::vector<float> alone = rows_of({{2, 87, 150}}, 0, 63);
  ExpectSameBits(rows_of({{1, 0, 3}, {2, 87, 150}}, 3, 63), alone);
  ExpectSameBits(rows_of({{0, 0, 200}, {2, 87, 150}, {1, 0, 40}}, 200, 63), alone);
}

}  // namespace
}  // namespace bulkhead
