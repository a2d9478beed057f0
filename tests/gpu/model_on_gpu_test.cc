// Whole small models on a GPU, in a group of one and of two ranks that share it (threads, staged),
// teacher-forced against the CPU backend with the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/runtime/model/rounded_products.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 3e-2;  // norm(got - want) / norm(want)
// Of the CPU's greatest logit, twice with a quantised cache: then the arg max must agree.
constexpr float kClearMargin = 0.2F;

// The bundle brings its own data.
std::string DataFolder() {
  const char* folder = std::getenv("BULKHEAD_TEST_DATA");
  return folder != nullptr ? folder : BH_TEST_DATA;
}

RigDevice Gpu() {
  std::shared_ptr<CudaDriver> driver = std::move(NewCudaRuntimeDriver(0)).value();
  RigDevice rig;
  rig.device = std::move(CudaDevice::New(*driver, 0)).value();
  rig.backend = NewCudaBackend(*rig.device, *driver);
  rig.driver = std::move(driver);
  return rig;
}

struct ModelCase {
  std::string model;                                   // of the data folder
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
  KvFormat kv_format = KvFormat::kBF16;
  bool rounds = false;  // the CPU, too, rounds what products read
};

void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.model << (c.weights.has_value() ? WeightFormatName(*c.weights) : "");
}

class ModelOnGpu : public testing::TestWithParam<std::tuple<ModelCase, int>> {};

int64_t Greatest(const float* row, int64_t size) { return std::max_element(row, row + size) - row; }

TEST_P(ModelOnGpu, AgreesWithTheCpu) {
  const auto& [c, size] = GetParam();
  const std::string dir = DataFolder() + "/" + c.model;
  const Golden golden = ReadGolden(dir);
  RigOptions options;
  options.size = size;
  options.kv_format = c.kv_format;
  options.weight_dtype = c.weights;
  options.decode_tokens = 8;
  if (c.rounds) options.make_device = DeviceOfRoundedProducts;
  const RigResult cpu = RunRig(dir, golden.prompts, options);
  options.make_device = &Gpu;
  const RigResult gpu = RunRig(dir, golden.prompts, options);
  const RigResult again = RunRig(dir, golden.prompts, options);
  EXPECT_EQ(gpu.logits, again.logits) << "the same steps, other bits";
  const int64_t vocab = golden.vocab_size;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    EXPECT_LT(RelativeError(gpu.logits[i], cpu.logits[i]), kTolerance) << "prompt " << i;
    for (size_t at = 0; at < cpu.logits[i].size(); at += vocab) {
      const float* row = &cpu.logits[i][at];
      std::vector<float> sorted(row, row + vocab);
      std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
      const float margin = (IsQuantized(c.kv_format) ? 2 : 1) * kClearMargin;
      if (sorted[0] - sorted[1] <= margin) continue;
      EXPECT_EQ(Greatest(&gpu.logits[i][at], vocab), Greatest(row, vocab)) << "prompt " << i;
    }
  }
}

std::vector<ModelCase> Cases() {
  return {{"models/llama3_gqa_bf16"},
          {"models/llama3_gqa_bf16", WeightFormat::kInt4, KvFormat::kInt8},
          {"models/llama32_tied_bf16", WeightFormat::kInt8, KvFormat::kInt8},
          {"models/mistral_window_bf16"},
          {"models/qwen2_14h_bf16"},
          {"models/qwen3_bf16"},
          {"models/llama2_mha_f16", std::nullopt, KvFormat::kF16},
          {"models/llama_mqa_bf16"},
          {"models/qwen3_5_bf16", std::nullopt, KvFormat::kBF16, true},
          {"models/gemma4_bf16", std::nullopt, KvFormat::kBF16, true},
          {"quantised/gptq_act_order"},
          {"quantised/awq"}};
}
INSTANTIATE_TEST_SUITE_P(Fixtures, ModelOnGpu,
                         testing::Combine(testing::ValuesIn(Cases()), testing::Values(1, 2)),
                         [](const auto& test) {
                           return absl::StrCat("Case", test.index / 2, "AtTp",
                                               std::get<1>(test.param));
                         });

}  // namespace
}  // namespace bulkhead
