// Whole small models on a GPU, in a group of one and of two ranks that share it (threads, staged),
// teacher-forced against the CPU backend with the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/runtime/model/recorded_routing.h"
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

// Routed as in `calls`.
RigDevice GpuThatRoutesAs(const RouterLogits& calls) {
  std::shared_ptr<CudaDriver> driver = std::move(NewCudaRuntimeDriver(0)).value();
  RigDevice rig;
  rig.device = std::move(CudaDevice::New(*driver, 0)).value();
  rig.backend = std::make_unique<RoutedAsRecorded>(*rig.device, *driver, calls, 2 * kTolerance);
  rig.driver = std::move(driver);
  return rig;
}

struct ModelCase {
  std::string model;                                   // of the data folder
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
  KvFormat kv_format = KvFormat::kBF16;
  bool rounds = false;  // the CPU, too, rounds what products read
  bool has_experts = false;
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
  RouterLogits calls;
  if (c.has_experts) {
    options.size = 1;           // the same bits at any size, each call once
    options.decode_tokens = 0;  // of other tokens, where the devices choose others
    options.make_device = [&] {
      RigDevice rig;
      rig.device = NewHostDevice(0);
      rig.backend = std::make_unique<RecordsRouting>(*rig.device, c.rounds, calls);
      return rig;
    };
  }
  const RigResult cpu = RunRig(dir, golden.prompts, options);
  options.size = size;
  options.make_device = &Gpu;
  if (c.has_experts) options.make_device = [&] { return GpuThatRoutesAs(calls); };
  const RigResult gpu = RunRig(dir, golden.prompts, options);
  const RigResult again = RunRig(dir, golden.prompts, options);
  EXPECT_EQ(gpu.logits, again.logits) << "the same steps, other bits";
  const int64_t vocab = golden.vocab_size;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    // Of fp8 a code that rounding flips is a sixteenth of its number.
    const double tolerance = (c.kv_format == KvFormat::kFP8 ? 2 : 1) * kTolerance;
    EXPECT_LT(RelativeError(gpu.logits[i], cpu.logits[i]), tolerance) << "prompt " << i;
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
          {"models/llama3_gqa_bf16", std::nullopt, KvFormat::kFP8},
          {"models/mixtral_bf16", std::nullopt, KvFormat::kBF16, false, true},
          {"models/deepseek_v2_bf16", std::nullopt, KvFormat::kBF16, false, true},
          {"quantised/gptq_act_order"},
          {"quantised/awq"},
          {"quantised/ct_mxfp4"},
          {"quantised/ct_nvfp4"},
          {"quantised/ct_int4_g32_asym"},
          {"quantised/gpt_oss_mxfp4", std::nullopt, KvFormat::kBF16, false, true}};
}
INSTANTIATE_TEST_SUITE_P(Fixtures, ModelOnGpu,
                         testing::Combine(testing::ValuesIn(Cases()), testing::Values(1, 2)),
                         [](const auto& test) {
                           return absl::StrCat("Case", test.index / 2, "AtTp",
                                               std::get<1>(test.param));
                         });

// Recorded again when the pool grows; steps of three sequences are padded.
TEST(ModelOnGpuGraphs, GiveTheBitsOfStepsWithoutThemAtTp1) {
  for (const char* const model : {"models/llama3_gqa_bf16", "models/qwen3_5_bf16"}) {
    const std::string dir = DataFolder() + "/" + model;
    const std::vector<int32_t> prompt = ReadGolden(dir).prompts[2];
    for (const int count : {1, 3}) {
      RigOptions options;
      options.make_device = &Gpu;
      options.kv_format = KvFormat::kBF16;
      options.decode_tokens = 9;  // past the end of a block
      options.decode_logits = true;
      std::vector<std::vector<int32_t>> prompts(count, {prompt.begin(), prompt.begin() + 9});
      for (int i = 0; i < count; ++i) prompts[i].back() = prompt[i];
      const RigResult without = RunRig(dir, prompts, options);
      options.pads_decodes = true;
      options.decode_graphs = true;
      options.blocks_at_first = 2;
      const RigResult with = RunRig(dir, prompts, options);
      EXPECT_EQ(with.greedy_ids, without.greedy_ids) << model << " " << count;
      EXPECT_EQ(with.logits, without.logits) << model << " " << count;
    }
  }
}

}  // namespace
}  // namespace bulkhead
