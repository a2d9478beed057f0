#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

struct RopeCase {
  int heads, kv_heads, head_dim;
  bool norms;
};
class CudaNormRopeTest : public testing::TestWithParam<RopeCase> {};
INSTANTIATE_TEST_SUITE_P(Heads, CudaNormRopeTest,
                         testing::Values(RopeCase{8, 4, 16, false}, RopeCase{3, 3, 8, true},
                                         RopeCase{5, 1, 80, true}, RopeCase{1, 1, 256, false},
                                         RopeCase{4, 2, 24, true}));

TEST_P(CudaNormRopeTest, IsThatOfTheReference) {
  const RopeCase& c = GetParam();
  const auto run = [&](Backend& backend) {
    const std::vector<int32_t> kv_of(c.heads, 0);
    const HeadLayout heads{c.heads, c.kv_heads, c.head_dim, kv_of.data()};
    const std::vector<int32_t> position = {0, 7, 3, 3, 9};
    PaddedMatrix qkv(kRows, (c.heads + 2 * c.kv_heads) * c.head_dim, 8), rope(10, c.head_dim, 9);
    PaddedMatrix q_norm(1, c.head_dim, 10), k_norm(1, c.head_dim, 11);
    const StepIndex index{.num_seqs = 1, .num_tokens = kRows, .position = position.data()};
    const auto if_norms = [&](PaddedMatrix& m) { return c.norms ? m.View() : MatrixView(); };
    backend.NormRope(index, heads, if_norms(q_norm), if_norms(k_norm), 1e-6F, rope.View(),
                     qkv.View());
    Wait(backend);
    return qkv.Values();
  };
  ExpectLikeReference(run, kRopeTolerance * 2);
}

}  // namespace
}  // namespace bulkhead
