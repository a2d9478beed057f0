// Whole small models with experts on emulated CUDA devices, in a group of one and of two, against
// the CPU, routed as recorded there.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/model/emulated_rig.h"
#include "tests/runtime/model/recorded_routing.h"

namespace bulkhead {
namespace {

struct ExpertModelCase {
  std::string model;
  int size = 1;
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
  KvFormat kv_format = KvFormat::kBF16;
  int chunk_tokens = 40;  // of a prompt in a step
  bool rounds = false;    // the CPU, too, rounds what products read
};
std::ostream& operator<<(std::ostream& out, const ExpertModelCase& c) {
  return out << c.model << ", tp " << c.size
             << (c.weights.has_value() ? WeightFormatName(*c.weights) : "");
}

class CudaExpertModel : public testing::TestWithParam<ExpertModelCase> {};

TEST_P(CudaExpertModel, AgreesWithTheCpu) {
  const ExpertModelCase& c = GetParam();
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + c.model;
  Golden golden = ReadGolden(dir);
  // One that continues behind what the cache has.
  if (golden.prompts.size() == 3) golden.prompts.push_back(LongPrompt(golden, 60));
  RouterLogits calls;
  RigOptions options;
  options.kv_format = c.kv_format;
  options.weight_dtype = c.weights;
  options.chunk_tokens = c.chunk_tokens;
  options.make_device = [&] {
    RigDevice rig;
    rig.device = NewHostDevice(0);
    rig.backend = std::make_unique<RecordsRouting>(*rig.device, c.rounds, calls);
    return rig;
  };
  const RigResult cpu = RunRig(dir, golden.prompts, options);
  ASSERT_FALSE(calls.empty());
  options.size = c.size;
  options.make_device = [&] {
    std::shared_ptr<emulator::EmulatedCudaDriver> driver;
    RigDevice rig = EmulatedDevice(emulator::Schedule::kAscending, true, &driver);
    // Those of one token are few numbers.
    rig.backend = std::make_unique<RoutedAsRecorded>(
        *rig.device, *driver, calls, (c.kv_format == KvFormat::kFP8 ? 4 : 2) * kTolerance);
    return rig;
  };
  const RigResult cuda = RunRig(dir, golden.prompts, options);
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    ExpectLikeCpu(cuda.logits[i], cpu.logits[i], golden.vocab_size, c.kv_format);
  }
}

std::vector<ExpertModelCase> Cases() {
  const auto int4 = WeightFormat::kInt4;
  const auto int8 = WeightFormat::kInt8;
  const auto stored = std::nullopt;
  return {
      {"mixtral_bf16", 1},
      {"mixtral_bf16", 2, int4},
      {"mixtral_bf16", 1, stored, KvFormat::kBF16, 1},  // steps of few tokens
      {"qwen3_moe_bf16", 1, int4},
      {"qwen3_moe_bf16", 2},
      {"olmoe_bf16", 1},
      {"olmoe_bf16", 2, int8},
      {"granitemoe_bf16", 1, int8},
      {"granitemoe_bf16", 2},
      {"glm4_moe_bf16", 1},
      {"glm4_moe_bf16", 2, int4, KvFormat::kInt8},
      {"glm4_moe_bf16", 2, stored, KvFormat::kBF16, 1},
      {"minimax_m2_bf16", 1},
      {"minimax_m2_bf16", 2},
      {"qwen2_moe_bf16", 1},
      {"gpt_oss_bf16", 2},
      {"../quantised/gpt_oss_mxfp4", 1},
      {"../quantised/gpt_oss_mxfp4", 2, stored, KvFormat::kBF16, 1},
      {"llama4_bf16", 1},
      {"qwen3_next_bf16", 1},
      {"qwen3_next_bf16", 2, stored, KvFormat::kInt8, 40, true},
      {"qwen3_next_bf16", 2, stored, KvFormat::kBF16, 1},
      {"qwen3_5_moe_bf16", 1, stored, KvFormat::kBF16, 40, true},
      {"gemma4_moe_bf16", 2},
      {"qwen2_moe_bf16", 2, stored, KvFormat::kFP8},
      {"deepseek_v2_bf16", 1},
      {"deepseek_v2_bf16", 2, int4, KvFormat::kF16},
      {"deepseek_v3_bf16", 1, stored, KvFormat::kBF16, 1},
      {"deepseek_v3_bf16", 2, int8},
      {"deepseek_v3_bf16", 1, stored, KvFormat::kFP8},
  };
}
INSTANTIATE_TEST_SUITE_P(Models, CudaExpertModel, testing::ValuesIn(Cases()));

}  // namespace
}  // namespace bulkhead
