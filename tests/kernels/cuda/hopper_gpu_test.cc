// Which kernels the CUDA backend has on GPUs of compute capability 9.0 alone, and for what.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/kernels/experts/expert_workspace.h"
#include "tests/kernels/experts/routing.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/paged_step.h"
#include "tests/kernels/products_support.h"
#include "tests/kernels/variants.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

using Turns = std::map<std::string, int>;  // at shared memory, of each kernel that ran

// What a prompt of 20 tokens attends to.
std::vector<float> Attend(AttentionCase c, int capability_major, Turns& turns,
                          int row_padding = 4) {
  c.row_padding = row_padding;
  emulator::DeviceOptions options{.host_memory_too = true};
  options.capability_major = capability_major;
  options.bank_turns = &turns;
  CudaUnderTest cuda(std::make_unique<emulator::EmulatedCudaDriver>(options));
  PagedSequences sequences(*cuda.backend, c, {20}, 20);
  return sequences.AppendAndAttend({{0, 0, 20}});
}
std::string KernelOf(const AttentionCase& c, int capability_major, int row_padding = 4) {
  Turns turns;
  Attend(c, capability_major, turns, row_padding);
  std::string names;
  for (const auto& [name, of_kernel] : turns) {
    if (name.starts_with("attend")) names += name;
  }
  return names;
}

TEST(HopperGpu, HasWarpgroupsForWhatTheyCanDo) {
  const auto groups = AttentionCase::Groups(1, 2);
  const AttentionCase bf16{groups, 1, 128, KvFormat::kBF16, 16, 0};
  EXPECT_EQ(KernelOf(bf16, 9), "attend warpgroups bf16");
  EXPECT_EQ(KernelOf({groups, 1, 64, KvFormat::kF16, 16, 0}, 9), "attend warpgroups f16");
  EXPECT_EQ(KernelOf(bf16, 8), "attend bf16");
  EXPECT_EQ(KernelOf(bf16, 10), "attend bf16");
  EXPECT_EQ(KernelOf(bf16, 9, /*row_padding=*/2), "attend bf16");
  EXPECT_EQ(KernelOf({groups, 1, 80, KvFormat::kBF16, 16, 0}, 9), "attend bf16");
  EXPECT_EQ(KernelOf({groups, 1, 64, KvFormat::kBF16, 16, 0, 2.0F}, 9), "attend bf16");
  EXPECT_EQ(KernelOf({groups, 1, 64, KvFormat::kFP8, 16, 0}, 9), "attend warpgroups fp8");
  EXPECT_EQ(KernelOf({groups, 1, 128, KvFormat::kInt8, 16, 0}, 9), "attend warpgroups int8");
  EXPECT_EQ(KernelOf({groups, 1, 64, KvFormat::kInt4, 16, 0}, 9), "attend warpgroups int4");
  EXPECT_EQ(KernelOf({groups, 1, 80, KvFormat::kInt8, 16, 0}, 9), "attend int8");
  EXPECT_EQ(KernelOf({groups, 1, 64, KvFormat::kInt8, 16, 0}, 8), "attend int8");
}

TEST(HopperGpu, HasWarpgroupsThatAttendToMoreHeadsThanABlockHasColumns) {
  const AttentionCase c{AttentionCase::Groups(1, 130), 1, 64, KvFormat::kBF16, 16, 0};
  Turns turns;
  const std::vector<float> out = Attend(c, 9, turns);
  EXPECT_EQ(turns.at("attend warpgroups bf16"), 1);  // no bank conflicts
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::unique_ptr<Backend> reference = NewReferenceBackend(*host);
  PagedSequences sequences(*reference, c, {20}, 20);
  EXPECT_LT(RelativeError(out, sequences.AppendAndAttend({{0, 0, 20}})), 4e-3);
}

TEST(HopperGpu, HasWarpgroupsThatMakeNumbersOfCodesInDifferentBanks) {
  const std::pair<KvFormat, std::string> formats[] = {
      {KvFormat::kInt8, "int8"}, {KvFormat::kInt4, "int4"}, {KvFormat::kFP8, "fp8"}};
  for (const auto& [format, name] : formats) {
    for (const int head_dim : {64, 128}) {
      Turns turns;
      Attend({AttentionCase::Groups(1, 2), 1, head_dim, format, 16, 0}, 9, turns);
      EXPECT_EQ(turns.at("attend warpgroups " + name), 1) << name << " " << head_dim;
    }
  }
}

struct Gpu {
  int capability_major;
  int num_sms = 4;
  bool warms_up = false;
  std::string idle_kernels = "-";

  emulator::DeviceOptions Options(Turns& turns) const {
    emulator::DeviceOptions options{.num_sms = num_sms, .host_memory_too = true};
    options.capability_major = capability_major;
    options.bank_turns = &turns;
    options.idle_kernels = idle_kernels;
    return options;
  }
};

// Of 17 tokens; `kernels` gets the names of what ran.
std::vector<float> Multiply(const ProductCase& c, const Gpu& gpu, std::string& kernels) {
  Turns turns;
  const emulator::DeviceOptions options = gpu.Options(turns);
  CudaUnderTest cuda(std::make_unique<emulator::EmulatedCudaDriver>(options));
  std::vector<float> x = NormalFloats(17 * c.shape.cols, 3);
  std::vector<float> out(17 * c.shape.rows, NAN);
  Packed packed(*cuda.backend, c, 100, /*room_for_parts=*/true);
  if (gpu.warms_up) {
    std::vector<float> rows(64 * c.shape.rows);
    const MatrixView whole = ViewOf(rows, 64, c.shape.rows, c.shape.rows);
    EXPECT_TRUE(cuda.backend->WarmUpMatMul(whole, packed.linear, whole).ok());
    turns.clear();
  }
  cuda.backend->MatMul(ViewOf(x, 17, c.shape.cols, c.shape.cols), packed.linear,
                       ViewOf(out, 17, c.shape.rows, c.shape.rows));
  packed.Wait();
  kernels.clear();
  for (const auto& [name, of_kernel] : turns) {
    if (name.starts_with("gather")) continue;
    kernels += name + " ";
    EXPECT_LE(of_kernel, 1) << "bank conflicts of " << name;
  }
  return out;
}

TEST(HopperGpu, MultipliesFewTokensByWarpgroupsToTheBitsOfOtherGpus) {
  std::string kernels;
  const ProductCase many_rows{{300, 900, WeightFormat::kInt4, {0, 900}, {128, 0, 0}}};
  const std::vector<float> want = Multiply(many_rows, {8, 1}, kernels);
  EXPECT_EQ(kernels, "linear int4 ");
  ExpectSameBits(Multiply(many_rows, {9, 1}, kernels), want);
  EXPECT_EQ(kernels, "linear warpgroups int4 ");
  ExpectSameBits(Multiply(many_rows, {9, 100}, kernels), want);
  EXPECT_EQ(kernels, "linear int4 ") << "many multiprocessors share the inputs' reads";
  const ProductCase deep{{256, 4096, WeightFormat::kInt8, {0, 4096}, {128, 0, 0}}};
  const std::vector<float> want_of_deep = Multiply(deep, {8, 8}, kernels);
  ExpectSameBits(Multiply(deep, {9, 8}, kernels), want_of_deep);
  EXPECT_EQ(kernels, "add_parts linear warpgroups int8 ");
}

// What `tokens` tokens times an expert's weight make, and by which kernels.
std::vector<float> MultiplyExpert(const ProductCase& c, int64_t tokens, const Gpu& gpu,
                                  std::string& kernels) {
  Turns turns;
  const emulator::DeviceOptions options = gpu.Options(turns);
  CudaUnderTest cuda(std::make_unique<emulator::EmulatedCudaDriver>(options));
  const LinearShape& shape = c.shape;
  const ExpertWorkspace workspace(*cuda.backend, 1, 1, shape.cols);
  const Buffer memory = cuda.device->Allocate(cuda.backend->PackedBytes(shape)).value();
  const Linear weight{shape, memory.data()};
  Fill(c, *cuda.backend->Pack(weight));
  const std::vector<float> logits(tokens);
  Routing routing(tokens, 1, 1);
  cuda.backend->RouteTokens(View(logits, tokens, 1, 1), {}, {}, {}, routing.view);
  const std::vector<float> x = NormalFloats(tokens * shape.cols, 2);
  std::vector<float> out(tokens * shape.rows);
  const auto multiply = [&] {
    cuda.backend->MatMulExperts(View(x, tokens, shape.cols, shape.cols), {weight}, routing.view,
                                View(out, tokens, shape.rows, shape.rows));
  };
  if (gpu.warms_up) {
    EXPECT_TRUE(cuda.backend->WarmUpMatMul({}, weight, {}).ok());
    multiply();
    turns.clear();
  }
  multiply();
  EXPECT_TRUE(cuda.device->Synchronize().ok());
  kernels.clear();
  for (const auto& [name, of_kernel] : turns) {
    if (!name.starts_with("expert")) continue;
    kernels += name;
    EXPECT_EQ(of_kernel, name.starts_with("expert gemm") ? 2 : 1) << "bank conflicts of " << name;
  }
  return out;
}

TEST(HopperGpu, HasWarpgroupsForManyPairsOfAnExpert) {
  const auto shape = [](WeightFormat format, WeightGroups groups = {}) {
    return LinearShape{310, 400, format, {0, 72, 400}, groups};
  };
  const std::vector<std::pair<std::string, ProductCase>> cases = {
      {"bf16", {shape(WeightFormat::kBF16)}},
      {"f16", {shape(WeightFormat::kF16)}},
      {"int8", {shape(WeightFormat::kInt8, {.size = 32})}},
      {"int4", {shape(WeightFormat::kInt4, {.size = 64}), /*codes_as_stored=*/true}},
      {"fp8", {shape(WeightFormat::kFp8, {.size = 64, .scales = ScaleFormat::kF32}), true}},
      {"mxfp4", {shape(WeightFormat::kMxfp4, {.size = 32, .scales = ScaleFormat::kE8M0}), true}},
      {"nvfp4", {shape(WeightFormat::kNvfp4, {.size = 16, .scales = ScaleFormat::kE4M3}), true}},
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::unique_ptr<Backend> reference = NewReferenceBackend(*host);
  std::string kernels;
  for (const auto& [name, c] : cases) {
    SCOPED_TRACE(name);
    const std::vector<float> out = MultiplyExpert(c, 192, {9}, kernels);
    EXPECT_EQ(kernels, "expert pieces " + name);
    const Packed packed(*reference, c, 192);
    std::vector<float> x = NormalFloats(192 * c.shape.cols, 2), want(192 * c.shape.rows);
    reference->MatMul(ViewOf(x, 192, c.shape.cols, c.shape.cols), packed.linear,
                      ViewOf(want, 192, c.shape.rows, c.shape.rows));
    EXPECT_LT(RelativeError(out, want), 5e-3);
    // The emulator adds in one order, whatever multiplies, so numbers made of codes are the same.
    ExpectSameBits(MultiplyExpert(c, 192, {8}, kernels), out);
    EXPECT_EQ(kernels, "expert gemm " + name);
    MultiplyExpert(c, 72, {10}, kernels);
    EXPECT_EQ(kernels, "expert gemm " + name);
    MultiplyExpert(c, 64, {9}, kernels);
    EXPECT_EQ(kernels, "expert linear " + name);
  }
}

// Idle kernels are as wrong as any.
TEST(HopperGpu, DoesWithoutWarpgroupsWhoseProductsAreWrong) {
  std::string kernels;
  const ProductCase of_tokens{{300, 900, WeightFormat::kInt4, {0, 900}, {128, 0, 0}}};
  const std::vector<float> product = Multiply(of_tokens, {9, 1, true}, kernels);
  EXPECT_EQ(kernels, "linear warpgroups int4 ");
  const Gpu wrong{9, 1, true, "linear warpgroups"};
  ExpectSameBits(Multiply(of_tokens, wrong, kernels), product);
  EXPECT_EQ(kernels, "linear int4 ");
  const ProductCase of_pairs{{310, 200, WeightFormat::kBF16, {0, 72, 200}}};
  const std::vector<float> of_expert = MultiplyExpert(of_pairs, 200, {9, 4, true}, kernels);
  EXPECT_EQ(kernels, "expert pieces bf16");
  const Gpu wrong_of_experts{9, 4, true, "expert pieces"};
  ExpectSameBits(MultiplyExpert(of_pairs, 200, wrong_of_experts, kernels), of_expert);
  EXPECT_EQ(kernels, "expert gemm bf16");
}

// The second of two steps, whose first one has the same numbers.
std::vector<float> AttendAfterWarmUp(const AttentionCase& c, const Gpu& gpu, Turns& turns) {
  CudaUnderTest cuda(std::make_unique<emulator::EmulatedCudaDriver>(gpu.Options(turns)));
  EXPECT_TRUE(cuda.backend->WarmUpMatMul({}, Linear(), {}).ok());
  PagedSequences sequences(*cuda.backend, c, {20}, 20);
  const std::vector<float> checked = sequences.AppendAndAttend({{0, 0, 20}});
  turns.clear();
  const std::vector<float> out = sequences.AppendAndAttend({{0, 0, 20}});
  ExpectSameBits(checked, out);
  return out;
}

TEST(HopperGpu, DoesWithoutWarpgroupsWhoseAttentionToCodesIsWrong) {
  for (const auto& [format, name] : {std::pair(KvFormat::kInt8, "int8"), {KvFormat::kFP8, "fp8"}}) {
    AttentionCase c{AttentionCase::Groups(1, 2), 1, 128, format, 16, 0};
    c.row_padding = 4;
    Turns turns;
    const std::vector<float> out = AttendAfterWarmUp(c, {9, 4, true}, turns);
    EXPECT_TRUE(turns.contains(absl::StrCat("attend warpgroups ", name)));
    const Gpu wrong{9, 4, true, "attend warpgroups"};
    EXPECT_LT(RelativeError(AttendAfterWarmUp(c, wrong, turns), out), 4e-3);
    EXPECT_TRUE(turns.contains(absl::StrCat("attend ", name)));
  }
}

}  // namespace
}  // namespace bulkhead
