// Whole small models on emulated CUDA devices whose products of many tokens are a library's,
// against the CPU backend.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/kernels/cuda/fake_cublas_lt_use.h"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

RigDevice DeviceWithLibrary() {
  FakeCublasLt();
  auto driver = std::make_shared<emulator::EmulatedCudaDriver>(
      emulator::DeviceOptions{.total_bytes = int64_t{192} << 20, .guarded = true, .late = true});
  RigDevice rig;
  rig.device = std::move(CudaDevice::New(*driver, 0)).value();
  rig.backend = NewCudaBackend(*rig.device, *driver, std::move(NewCublasLt(*driver)).value());
  rig.driver = std::move(driver);
  return rig;
}

struct ModelCase {
  std::string model;
  int size = 1;
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
};

// So many prompts at once that a step is a bucket of the library's, whole or not.
TEST(CudaLibraryModel, AgreesWithTheCpu) {
  for (const ModelCase& c : {ModelCase{"llama3_gqa_bf16", 1}, ModelCase{"qwen2_14h_bf16", 2},
                             ModelCase{"llama3_gqa_bf16", 2, WeightFormat::kInt4}}) {
    SCOPED_TRACE(testing::Message() << c.model << ", tp " << c.size);
    const std::string dir = std::string(BH_TEST_DATA) + "/models/" + c.model;
    std::vector<std::vector<int32_t>> prompts(3, LongPrompt(ReadGolden(dir), 200));
    prompts[2].resize(512 - 2 * 200);  // a step of 512 tokens, as codes want
    RigOptions options;
    options.size = c.size;
    options.kv_format = KvFormat::kBF16;
    options.weight_dtype = c.weights;
    options.decode_tokens = 2;
    const RigResult cpu = RunRig(dir, prompts, options);
    options.make_device = &DeviceWithLibrary;
    const int before = FakeCublasLt().products;
    const RigResult cuda = RunRig(dir, prompts, options);
    EXPECT_GT(FakeCublasLt().products, before);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_LT(RelativeError(cuda.logits[i], cpu.logits[i]), kTolerance) << "prompt " << i;
    }
    EXPECT_EQ(FakeCublasLt().handles, 0);
  }
}

// The library's gates and ups are in bf16, so some tokens get other experts, which moves the logits
// by up to twice the tolerance.
class CudaLibraryExpertModel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaLibraryExpertModel,
                         testing::Values("glm4_moe_bf16", "deepseek_v3_bf16"));

TEST_P(CudaLibraryExpertModel, IsNearOurOwnKernels) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const std::vector<std::vector<int32_t>> prompts = {LongPrompt(ReadGolden(dir), 130)};
  RigOptions options;
  options.kv_format = KvFormat::kBF16;
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  const RigResult own = RunRig(dir, prompts, options);
  options.make_device = &DeviceWithLibrary;
  const int before = FakeCublasLt().products;
  const RigResult with = RunRig(dir, prompts, options);
  EXPECT_GT(FakeCublasLt().products, before);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LT(RelativeError(with.logits[i], own.logits[i]), 3 * kTolerance) << "prompt " << i;
  }
}

}  // namespace
}  // namespace bulkhead
