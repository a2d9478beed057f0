// Whole small models on emulated CUDA devices, in a group of one and of two, teacher-forced against
// the CPU backend with the same weights. The host cannot touch the devices' memory but by copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 3e-2;   // norm(got - want) / norm(want)
constexpr float kClearMargin = 0.2F;  // of the CPU's greatest logit: then the arg max must agree

RigDevice EmulatedDevice(emulator::Schedule schedule, bool late) {
  emulator::DeviceOptions options{.total_bytes = int64_t{64} << 20, .guarded = true};
  options.late = late;
  options.schedule = schedule;
  auto driver = std::make_shared<emulator::EmulatedCudaDriver>(options);
  RigDevice rig;
  rig.device = std::move(CudaDevice::New(*driver, 0)).value();
  rig.backend = NewCudaBackend(*rig.device, *driver);
  rig.driver = std::move(driver);
  return rig;
}

struct ModelCase {
  std::string model;
  int size = 1;
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
  KvFormat kv_format = KvFormat::kBF16;
  std::string folder = "models";
};
std::ostream& operator<<(std::ostream& out, const ModelCase& c) {
  return out << c.model << ", tp " << c.size
             << (c.weights.has_value() ? WeightFormatName(*c.weights) : "");
}

class CudaModel : public testing::TestWithParam<ModelCase> {};

// Index of the greatest, and how far it is above the second.
std::pair<int64_t, float> Greatest(const float* row, int64_t size) {
  const int64_t best = std::max_element(row, row + size) - row;
  float second = -HUGE_VALF;
  for (int64_t i = 0; i < size; ++i) {
    if (i != best) second = std::max(second, row[i]);
  }
  return {best, row[best] - second};
}

TEST_P(CudaModel, AgreesWithTheCpu) {
  const ModelCase& c = GetParam();
  const std::string dir = std::string(BH_TEST_DATA) + "/" + c.folder + "/" + c.model;
  const Golden golden = ReadGolden(dir);
  RigOptions options;
  options.size = c.size;
  options.kv_format = c.kv_format;
  options.weight_dtype = c.weights;
  options.chunk_tokens = 40;  // prompts continue behind what the cache has
  options.decode_tokens = 4;
  const RigResult cpu = RunRig(dir, golden.prompts, options);
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  const RigResult cuda = RunRig(dir, golden.prompts, options);
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    EXPECT_LT(RelativeError(cuda.logits[i], cpu.logits[i]), kTolerance) << "prompt " << i;
    const int64_t vocab = golden.vocab_size;
    for (size_t at = 0; at < cpu.logits[i].size(); at += vocab) {
      const auto [want, margin] = Greatest(&cpu.logits[i][at], vocab);
      if (margin <= kClearMargin) continue;
      EXPECT_EQ(Greatest(&cuda.logits[i][at], vocab).first, want) << "prompt " << i;
    }
  }
}

// No cache in int4: a code that flips in one of 15 levels is a larger difference than bf16 makes.
std::vector<ModelCase> Cases() {
  const auto int4 = WeightFormat::kInt4;
  return {
      {"llama3_gqa_bf16", 1},
      {"llama3_gqa_bf16", 2},
      {"llama3_gqa_bf16", 1, int4},
      {"llama3_gqa_bf16", 2, int4, KvFormat::kInt8},
      {"llama32_tied_bf16", 2, WeightFormat::kInt8, KvFormat::kInt8},
      {"mistral_window_bf16", 1},
      {"qwen2_14h_bf16", 2},
      {"qwen3_bf16", 1},
      {"llama2_mha_f16", 1, std::nullopt, KvFormat::kF16},
      {"llama_mqa_bf16", 2},
      {"gptq_act_order", 1, std::nullopt, KvFormat::kBF16, "quantised"},
      {"awq", 2, std::nullopt, KvFormat::kBF16, "quantised"},
  };
}
INSTANTIATE_TEST_SUITE_P(Models, CudaModel, testing::ValuesIn(Cases()));

TEST(CudaModelBits, AreTheSameInEveryOrderOfThreadsAndWheneverTheQueueRuns) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/qwen3_bf16";
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(dir).prompts[2]};
  RigOptions options;
  options.kv_format = KvFormat::kInt8;
  options.decode_tokens = 3;
  std::vector<float> first;
  for (const emulator::Schedule schedule : emulator::kAllSchedules) {
    for (const bool late : {false, true}) {
      options.make_device = [=] { return EmulatedDevice(schedule, late); };
      const std::vector<float> logits = RunRig(dir, prompts, options).logits[0];
      if (first.empty()) first = logits;
      EXPECT_TRUE(logits == first);
    }
  }
}

TEST(CudaModelBits, AreTheSameWhenTheKvPoolHasGrownInPlace) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/qwen3_bf16";
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(dir).prompts[2]};
  RigOptions options;
  options.size = 2;
  options.kv_format = KvFormat::kBF16;
  options.decode_tokens = 3;
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  const RigResult whole = RunRig(dir, prompts, options);
  options.blocks_at_first = 1;
  const RigResult grown = RunRig(dir, prompts, options);
  EXPECT_TRUE(grown.logits == whole.logits);
  EXPECT_EQ(grown.greedy_ids, whole.greedy_ids);
}

}  // namespace
}  // namespace bulkhead
