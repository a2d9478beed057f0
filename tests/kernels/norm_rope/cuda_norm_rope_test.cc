#include <algorithm>

#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

struct RopeCase {
  int heads, kv_heads, head_dim;
  bool norms;
  int rotary_dim;
  bool interleaved = false;
  bool norm_after_rotary = false;
  bool scales_q = false;
  bool of_all_heads = false;
  bool without_weight = false;
  bool of_halves = false;
  bool values = false;
};
class CudaNormRopeTest : public testing::TestWithParam<RopeCase> {};
INSTANTIATE_TEST_SUITE_P(
    Heads, CudaNormRopeTest,
    testing::Values(RopeCase{8, 4, 16, false, 16}, RopeCase{3, 3, 8, true, 8},
                    RopeCase{5, 1, 80, true, 80}, RopeCase{1, 1, 256, false, 256},
                    RopeCase{4, 2, 24, true, 24}, RopeCase{4, 2, 80, true, 24},
                    RopeCase{4, 2, 80, true, 80, true},
                    RopeCase{4, 2, 48, true, 20, true, true, true},
                    RopeCase{4, 2, 16, true, 0, false, false, true},
                    RopeCase{5, 2, 24, true, 24, false, false, false, true},
                    RopeCase{4, 2, 24, false, 24, true, true, false, false, true},
                    RopeCase{.heads = 4,
                             .kv_heads = 2,
                             .head_dim = 32,
                             .norms = true,
                             .rotary_dim = 8,
                             .of_halves = true,
                             .values = true},
                    RopeCase{.heads = 3,
                             .kv_heads = 3,
                             .head_dim = 16,
                             .norms = true,
                             .rotary_dim = 2,
                             .of_all_heads = true,
                             .values = true}));

TEST_P(CudaNormRopeTest, IsThatOfTheReference) {
  const RopeCase& c = GetParam();
  const auto run = [&](Backend& backend) {
    const std::vector<int32_t> kv_of(c.heads, 0);
    const HeadLayout heads{c.heads, c.kv_heads, c.head_dim, kv_of.data()};
    const std::vector<int32_t> position = {0, 7, 3, 3, 9};
    PaddedMatrix qkv(kRows, (c.heads + 2 * c.kv_heads) * c.head_dim, 8),
        rope(10, std::max(1, c.rotary_dim), 9);
    const int q_norms = c.of_all_heads ? c.heads : 1;
    const int k_norms = c.of_all_heads ? c.kv_heads : 1;
    PaddedMatrix q_norm(1, q_norms * c.head_dim, 10), k_norm(1, k_norms * c.head_dim, 11),
        q_scale(10, 1, 12), squares(kRows, 2, 13);
    for (int row = 0; row < kRows; ++row) {
      for (int part : {0, 1}) squares.View().F32(row)[part] = static_cast<float>(50 + row + part);
    }
    const StepIndex index{.num_seqs = 1, .num_tokens = kRows, .position = position.data()};
    const auto view_if = [](bool has, PaddedMatrix& m) { return has ? m.View() : MatrixView(); };
    HeadNorms norms{view_if(c.norms, q_norm), view_if(c.norms, k_norm), 1e-6F, c.norm_after_rotary};
    norms.squares = view_if(c.of_all_heads, squares);
    norms.without_weight = c.without_weight;
    norms.values = c.values;
    norms.q_size = 200;
    norms.k_size = 90;
    backend.NormRope(
        index, heads, norms,
        {view_if(c.rotary_dim > 0, rope), c.interleaved, view_if(c.scales_q, q_scale), c.of_halves},
        qkv.View());
    Wait(backend);
    return qkv.Values();
  };
  ExpectLikeReference(run, kRopeTolerance * 2);
}

class CudaNormRopeAppendTest : public testing::TestWithParam<KvFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, CudaNormRopeAppendTest,
                         testing::Values(KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8,
                                         KvFormat::kInt4, KvFormat::kFP8));

TEST_P(CudaNormRopeAppendTest, InOnePassAreTheBytesOfTwo) {
  constexpr int kHeads = 5, kKvHeads = 3, kHeadDim = 40, kBlocks = 3;
  const KvGeometry geometry{kKvHeads, kHeadDim, 16, GetParam()};
  const std::vector<int32_t> kv_of = {0, 0, 1, 1, 2};
  const HeadLayout heads{kHeads, kKvHeads, kHeadDim, kv_of.data()};
  const std::vector<int32_t> position = {14, 15, 16, 3, 4}, seq_begin = {0, 3, 5}, slots = {1, 0},
                             token_seq = {0, 0, 0, 1, 1}, tables = {2, 0, 1, 0};
  const StepIndex index{
      2, kRows, seq_begin.data(), slots.data(), position.data(), token_seq.data(), tables.data(),
      2};
  const std::vector<float> scales(2 * kKvHeads, 0.01F);
  for (const bool norms_values : {false, true}) {
    const auto run = [&](Backend& backend, bool in_one) {
      PaddedMatrix qkv(kRows, (kHeads + 2 * kKvHeads) * kHeadDim, 8), rope(20, kHeadDim, 9),
          norm(1, kHeadDim, 10);
      HeadNorms norms{norm.View(), norm.View(), 1e-6F, false};
      norms.values = norms_values;
      const Rotary rotary{rope.View(), false, {}, false};
      std::vector<std::byte> arena(kBlocks * geometry.LayerBlockBytes(), std::byte{0xFF});
      const KvLayerView kv{geometry, arena.data(), geometry.LayerBlockBytes(), scales.data(),
                           scales.data() + kKvHeads};
      if (in_one) {
        backend.NormRopeAppendKv(index, heads, norms, rotary, qkv.View(), kv);
      } else {
        backend.NormRope(index, heads, norms, rotary, qkv.View());
        backend.AppendKv(index, heads, qkv.View(), kv);
      }
      Wait(backend);
      return std::pair(qkv.Values(), arena);
    };
    for (CudaUnderTest& cuda : AllSchedules()) {
      EXPECT_TRUE(run(*cuda.backend, true) == run(*cuda.backend, false)) << norms_values;
    }
  }
}

struct LatentsCase {
  int heads, q_dim, head_dim, rotary_dim;
  bool interleaved;
};
class CudaRopeLatentsTest : public testing::TestWithParam<LatentsCase> {};
INSTANTIATE_TEST_SUITE_P(Heads, CudaRopeLatentsTest,
                         testing::Values(LatentsCase{8, 24, 40, 8, true},
                                         LatentsCase{1, 10, 12, 10, false},
                                         LatentsCase{6, 192, 576, 64, true},
                                         LatentsCase{3, 40, 72, 34, false}));

// What is not turned stays as it was.
TEST_P(CudaRopeLatentsTest, IsThatOfTheReference) {
  const LatentsCase& c = GetParam();
  const auto run = [&](Backend& backend) {
    const std::vector<int32_t> kv_of(c.heads, 0);
    const HeadLayout heads{c.heads, 1, c.head_dim, kv_of.data(), c.head_dim - c.rotary_dim};
    const std::vector<int32_t> position = {0, 7, 3, 3, 9};
    PaddedMatrix q(kRows, c.heads * c.q_dim, 8), qkv(kRows, (c.heads + 1) * c.head_dim, 9),
        rope(10, c.rotary_dim, 10);
    const StepIndex index{.num_seqs = 1, .num_tokens = kRows, .position = position.data()};
    backend.RopeLatents(index, heads, {rope.View(), c.interleaved, {}}, q.View(), qkv.View());
    Wait(backend);
    return qkv.Values();
  };
  ExpectLikeReference(run, kRopeTolerance * 2);
}

}  // namespace
}  // namespace bulkhead
