#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

TEST(IsaTest, BestIsTheLastButForBf16OnIntel) {
  EXPECT_EQ(BestIsa({Isa::kPlain, Isa::kAvx512Vnni, Isa::kAvx512Bf16}, false), Isa::kAvx512Bf16);
  EXPECT_EQ(BestIsa({Isa::kPlain, Isa::kAvx512Vnni, Isa::kAvx512Bf16}, true), Isa::kAvx512Vnni);
  EXPECT_EQ(BestIsa({Isa::kAvx512Bf16, Isa::kAvx512Amx}, true), Isa::kAvx512Amx);
  EXPECT_EQ(BestIsa({Isa::kPlain}, true), Isa::kPlain);
}

TEST(CpuBackendTest, NothingHappensOnNoRowsOrColumns) {
  CpuFixture cpu(Isa::kPlain, 2);
  std::vector<float> x(12, 3.0f);
  for (const MatrixView view : {ViewOf(x, 0, 4, 4), ViewOf(x, 3, 0, 4)}) {
    cpu.backend().AddBias(ConstMatrixView(), view);
    cpu.backend().AddResidual(view, ConstMatrixView(), 1, view);
    cpu.backend().SelectRows(view, nullptr, view);
    cpu.backend().Fill(1.0f, view);
    cpu.backend().Embed(nullptr, Linear{LinearShape::Whole(4, view.cols(), DType::kF32), nullptr},
                        0, view);
  }
  for (const float value : x) EXPECT_EQ(value, 3.0f);
}

TEST(CpuBackendTest, RefusesWhatItCannotHave) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  for (const int threads : {0, -1, kMaxThreads + 1}) {
    CpuBackendOptions options;
    options.num_threads = threads;
    EXPECT_EQ(NewCpuBackend(*device, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  CpuBackendOptions options;
  options.isa = "neon";
  EXPECT_EQ(NewCpuBackend(*device, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, SizesDependOnNeitherIsaNorThreads) {
  const StepLimits limits{64, 8, 256};
  const int32_t head = 0;
  const HeadLayout heads{1, 1, 16, &head};
  const LinearShape shape = LinearShape::Whole(100, 77, DType::kBF16);
  CpuFixture one(Isa::kPlain, 1);
  for (const Isa isa : PresentIsas()) {
    CpuFixture three(isa, 3);
    EXPECT_EQ(one.backend().WorkspaceBytes(limits, heads),
              three.backend().WorkspaceBytes(limits, heads));
    EXPECT_EQ(one.backend().PackedBytes(shape), three.backend().PackedBytes(shape));
  }
  EXPECT_EQ(one.backend().PackedBytes(shape), 128 * 78 * 2);  // a half pair is a whole word
}

}  // namespace
}  // namespace bulkhead
