#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

class EmbedTest : public ::testing::TestWithParam<Isa> {};

TEST_P(EmbedTest, AForeignTokenEmbedsAsZeros) {
  CpuFixture cpu(GetParam(), 2);
  Buffer memory;
  const Linear table = cpu.Pack(LinearShape::Whole(4, 3, DType::kF32), std::vector<float>(12, 1.0f),
                                DType::kF32, memory);
  const int32_t tokens[] = {9, 10, 13, 14, 0, 2000000000};
  std::vector<float> out(18, 5.0f);
  cpu.backend().Embed(tokens, table, 10, ViewOf(out, 6, 3, 3));
  for (int i = 0; i < 18; ++i) EXPECT_EQ(out[i], i / 3 == 1 || i / 3 == 2 ? 1.0f : 0.0f);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, EmbedTest, ::testing::ValuesIn(PresentIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace bulkhead
