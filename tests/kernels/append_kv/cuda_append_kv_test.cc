#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/paged_step.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

// The cache is the reference's to the byte, but for the bits of a NaN; what was not written stays.
void MakeNansAlike(KvFormat format, std::vector<std::byte>& arena) {
  auto* const numbers = reinterpret_cast<uint16_t*>(arena.data());
  const int infinity = format == KvFormat::kF16 ? 0x7C00 : 0x7F80;
  for (size_t i = 0; i < arena.size() / 2; ++i) {
    if (numbers[i] != 0xFFFF && (numbers[i] & 0x7FFF) > infinity) numbers[i] = 0x7FFF;
  }
}

std::vector<float> RandomScales(int count) {
  std::vector<float> scales = RandomFloats(count, 4);
  for (float& scale : scales) scale = 0.01F + std::fabs(scale);
  return scales;
}

class CudaAppendKv : public testing::TestWithParam<AttentionCase> {};
// Keys are quantised alike in caches that Attend does not read.
std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases = CudaAttentionCases();
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kInt4}) {
    cases.push_back(CudaLatentCases().front());
    cases.back().format = format;
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaAppendKv, testing::ValuesIn(Cases()));

TEST_P(CudaAppendKv, WritesTheBytesOfTheReference) {
  const AttentionCase& c = GetParam();
  constexpr int kTokens = 4;
  const KvGeometry geometry{c.num_kv_heads, c.head_dim, c.block_tokens, c.format, c.value_dim > 0};
  const HeadLayout heads{c.num_heads(), c.num_kv_heads, c.head_dim, c.head_to_kv.data(),
                         c.value_dim};
  const int64_t width = heads.qkv_dim();
  std::vector<float> qkv = RandomFloats(kTokens * width, 3);
  for (int64_t i = 0; i < width; ++i) qkv[width + i] *= 1e5F;  // beyond f16
  qkv[3 * width - 1] = NAN;
  for (int64_t i = 0; i < width; ++i) qkv[3 * width + i] = 0.25F;  // no range
  const std::vector<int32_t> seq_begin = {0, 3, 4}, seq_slot = {1, 0}, token_seq = {0, 0, 0, 1};
  const std::vector<int32_t> position = {c.block_tokens - 1, c.block_tokens, c.block_tokens + 1, 0};
  const std::vector<int32_t> tables = {3, 0, 1, 2};
  const StepIndex index{2,
                        kTokens,
                        seq_begin.data(),
                        seq_slot.data(),
                        position.data(),
                        token_seq.data(),
                        tables.data(),
                        2};
  const std::vector<float> scales = RandomScales(2 * c.num_kv_heads);  // fp8
  const auto run = [&](Backend& backend) {
    std::vector<std::byte> arena(4 * geometry.LayerBlockBytes(), std::byte{0xFF});
    backend.AppendKv(index, heads,
                     ConstMatrixView(reinterpret_cast<const std::byte*>(qkv.data()), DType::kF32,
                                     kTokens, width),
                     {geometry, arena.data(), geometry.LayerBlockBytes(), scales.data(),
                      scales.data() + c.num_kv_heads});
    EXPECT_TRUE(backend.device().Synchronize().ok());
    if (KvElementBits(c.format) == 16) MakeNansAlike(c.format, arena);
    return arena;
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::vector<std::byte> want = run(*NewReferenceBackend(*host));
  for (CudaUnderTest& cuda : AllSchedules()) EXPECT_TRUE(run(*cuda.backend) == want);
}

}  // namespace
}  // namespace bulkhead
