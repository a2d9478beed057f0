// Whole small models on emulated CUDA devices, in a group of one and of two, teacher-forced against
// the CPU backend with the same weights. The host cannot touch the devices' memory but by copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/match.h"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/runtime/model/rounded_products.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/model_rig.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

struct ModelCase {
  std::string model;
  int size = 1;
  std::optional<WeightFormat> weights = std::nullopt;  // as stored
  KvFormat kv_format = KvFormat::kBF16;
  std::string folder = "models";
  bool rounds = false;      // the CPU, too, rounds what products read
  bool is_adapted = false;  // of every second prompt
};
std::ostream& operator<<(std::ostream& out, const ModelCase& c) {
  return out << c.model << ", tp " << c.size
             << (c.weights.has_value() ? WeightFormatName(*c.weights) : "");
}

class CudaModel : public testing::TestWithParam<ModelCase> {};

TEST_P(CudaModel, AgreesWithTheCpu) {
  const ModelCase& c = GetParam();
  const std::string dir = std::string(BH_TEST_DATA) + "/" + c.folder + "/" + c.model;
  Golden golden = ReadGolden(dir);
  // One that continues behind what the cache has.
  if (golden.prompts.size() == 3) golden.prompts.push_back(LongPrompt(golden, 60));
  RigOptions options;
  options.size = c.size;
  options.kv_format = c.kv_format;
  options.weight_dtype = c.weights;
  options.chunk_tokens = 40;
  options.decode_tokens = 4;
  if (c.rounds) options.make_device = DeviceOfRoundedProducts;
  if (c.is_adapted) {
    options.adapters = {BH_TEST_DATA "/adapters/" + c.model};
    options.adapter_of_prompt = {1, 0, 1, 0};
  }
  const RigResult cpu = RunRig(dir, golden.prompts, options);
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  const RigResult cuda = RunRig(dir, golden.prompts, options);
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    ExpectLikeCpu(cuda.logits[i], cpu.logits[i], golden.vocab_size, c.kv_format);
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
      {"llama3_gqa_bf16", 2, std::nullopt, KvFormat::kFP8},
      {"llama2_mha_f16", 1, std::nullopt, KvFormat::kF16},
      {"llama_mqa_bf16", 2},
      {"gemma2_bf16", 2},
      {"exaone4_bf16", 2},
      {"olmo2_f32", 2, WeightFormat::kBF16},
      {"olmo3_bf16", 1, std::nullopt, KvFormat::kInt8},
      {"qwen3_5_bf16", 1, std::nullopt, KvFormat::kBF16, "models", true},
      {"qwen3_5_bf16", 2, std::nullopt, KvFormat::kInt8, "models", true},
      {"gemma4_bf16", 1, std::nullopt, KvFormat::kBF16, "models", true},
      {"gemma4_bf16", 2, std::nullopt, KvFormat::kBF16, "models", true},
      {"gptq_act_order", 1, std::nullopt, KvFormat::kBF16, "quantised"},
      {"awq", 2, std::nullopt, KvFormat::kBF16, "quantised"},
      {"qwen2_bf16", 1, std::nullopt, KvFormat::kBF16, "models", false, true},
      {"phi3_bf16", 2, int4, KvFormat::kBF16, "models", false, true},
      {"gemma2_bf16", 2, std::nullopt, KvFormat::kBF16, "models", false, true},
      {"ct_mxfp4", 1, std::nullopt, KvFormat::kBF16, "quantised"},
      {"ct_mxfp4", 2, std::nullopt, KvFormat::kInt8, "quantised"},
      {"ct_nvfp4", 1, std::nullopt, KvFormat::kBF16, "quantised"},
      {"ct_nvfp4", 2, std::nullopt, KvFormat::kBF16, "quantised"},
      {"ct_int4_g32_asym", 2, std::nullopt, KvFormat::kBF16, "quantised"},
  };
}
INSTANTIATE_TEST_SUITE_P(Models, CudaModel, testing::ValuesIn(Cases()));

// Latents are not kept in int8.
KvFormat KvFormatOf(const std::string& model) {
  return absl::StartsWith(model, "deepseek") ? KvFormat::kFP8 : KvFormat::kInt8;
}

class CudaModelBitsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaModelBitsOf,
                         testing::Values("qwen3_bf16", "mixtral_bf16", "deepseek_v2_bf16",
                                         "qwen3_5_bf16", "gemma4_bf16"));

TEST_P(CudaModelBitsOf, AreTheSameInEveryOrderOfThreadsAndWheneverTheQueueRuns) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(dir).prompts[2]};
  RigOptions options;
  options.kv_format = KvFormatOf(GetParam());
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

// Prompts of one length, so that all of them decode together.
std::vector<std::vector<int32_t>> EqualPrompts(const std::string& dir, int count) {
  const std::vector<int32_t> all = ReadGolden(dir).prompts[2];
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < count; ++i) {
    prompts.emplace_back(all.begin(), all.begin() + 9);
    prompts.back()[8] = all[i % all.size()];
  }
  return prompts;
}

class CudaDecodeGraphsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaDecodeGraphsOf,
                         testing::Values("qwen3_bf16", "qwen3_moe_bf16", "glm4_moe_bf16",
                                         "deepseek_v3_bf16", "qwen3_next_bf16", "gemma4_bf16"));

TEST_P(CudaDecodeGraphsOf, GiveTheBitsOfStepsWithoutThemAtEverySize) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  RigOptions options;
  options.kv_format = KvFormatOf(GetParam());
  options.decode_tokens = 9;  // past the end of a block
  options.decode_logits = true;
  constexpr int kSizes = 4;  // 1, 2, 4 and the rig's 8 sequences
  for (const int count : {1, 2, 3, 5, 8}) {
    const auto prompts = EqualPrompts(dir, count);
    const bool late = count != 3;
    std::shared_ptr<emulator::EmulatedCudaDriver> driver;
    options.make_device = [&] {
      return EmulatedDevice(emulator::Schedule::kAscending, late, &driver);
    };
    options.pads_decodes = false;
    options.decode_graphs = false;
    options.blocks_at_first = 0;
    const RigResult without = RunRig(dir, prompts, options);
    EXPECT_EQ(driver->graph_launches(), 0);
    options.pads_decodes = true;
    options.decode_graphs = true;
    options.blocks_at_first = 2;  // recorded again when the pool grows
    const RigResult with = RunRig(dir, prompts, options);
    EXPECT_EQ(with.greedy_ids, without.greedy_ids) << count;
    EXPECT_TRUE(with.logits == without.logits) << count;
    EXPECT_EQ(with.decode_steps, 8);
    EXPECT_EQ(driver->graph_launches(), kSizes + with.decode_steps);
    EXPECT_EQ(driver->live_graphs(), 0);  // all were given back
  }
}

TEST(CudaDecodeGraphs, StepsOfOtherSizesRunWithoutThem) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  std::vector<std::vector<int32_t>> prompts = EqualPrompts(dir, 3);
  prompts[1].resize(3);  // is sampled while the others' prompts are computed
  RigOptions options;
  options.kv_format = KvFormat::kBF16;
  options.decode_tokens = 5;
  options.decode_logits = true;
  options.chunk_tokens = 4;
  std::shared_ptr<emulator::EmulatedCudaDriver> driver;
  options.make_device = [&] {
    return EmulatedDevice(emulator::Schedule::kAscending, true, &driver);
  };
  const RigResult without = RunRig(dir, prompts, options);
  options.decode_graphs = true;  // and steps of three sequences have no graph
  const RigResult with = RunRig(dir, prompts, options);
  EXPECT_TRUE(with.logits == without.logits);
  EXPECT_EQ(with.greedy_ids, without.greedy_ids);
  EXPECT_LT(driver->graph_launches(), 4 + with.decode_steps);
}

TEST(CudaDecodeGraphs, StepsWithAdaptersRunWithoutThem) {
  const std::string dir = BH_TEST_DATA "/models/qwen2_bf16";
  const std::vector<std::vector<int32_t>> prompts = EqualPrompts(dir, 4);
  RigOptions options;
  options.kv_format = KvFormat::kBF16;
  options.decode_tokens = 5;
  options.decode_logits = true;
  options.adapters = {BH_TEST_DATA "/adapters/qwen2_bf16"};
  options.adapter_of_prompt = {0, 1, 1, 0};
  std::shared_ptr<emulator::EmulatedCudaDriver> driver;
  options.make_device = [&] {
    return EmulatedDevice(emulator::Schedule::kAscending, true, &driver);
  };
  const RigResult without = RunRig(dir, prompts, options);
  options.decode_graphs = true;
  options.pads_decodes = true;
  const RigResult with = RunRig(dir, prompts, options);
  EXPECT_TRUE(with.logits == without.logits);
  EXPECT_EQ(driver->graph_launches(), 4);  // of the warm-up
}

// Prompts of different lengths in small chunks: steps mix rows that the host sees whole with rows
// that are sampled on the device, whose tokens the next plan does not name.
class CudaModelSampling : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(CudaModelSampling, AreTheHostsAndFeedTheNextStepOnTheDevice) {
  const auto [size, late] = GetParam();
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  std::vector<std::vector<int32_t>> prompts = ReadGolden(dir).prompts;
  prompts.resize(3);
  RigOptions options;
  options.size = size;
  options.kv_format = KvFormat::kBF16;
  options.chunk_tokens = 8;
  options.decode_tokens = 4;
  options.make_device = [late = late] {
    return EmulatedDevice(emulator::Schedule::kAscending, late);
  };
  for (const SamplingParams& sampling :
       {SamplingParams{.temperature = 0},
        SamplingParams{.temperature = 2, .top_p = 0.95F, .top_k = 100, .seed = 8},
        SamplingParams{.temperature = 2, .seed = 9},
        SamplingParams{.temperature = 2, .top_p = 0.95F, .seed = 10}}) {
    options.sampling = sampling;
    options.on_device = false;
    const RigResult host = RunRig(dir, prompts, options);
    options.on_device = true;
    const RigResult device = RunRig(dir, prompts, options);
    EXPECT_EQ(device.greedy_ids, host.greedy_ids);
    EXPECT_TRUE(device.logits == host.logits);
  }
}
INSTANTIATE_TEST_SUITE_P(Groups, CudaModelSampling,
                         testing::Combine(testing::Values(1, 2), testing::Bool()));

// Requests that are sampled on the device, on the host, or now one and now the other, and end at
// different times while steps are in flight.
std::vector<Request> MixedRequests(const std::string& dir) {
  const std::vector<int32_t> all = ReadGolden(dir).prompts[2];
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request;
    request.request_id = std::to_string(i);
    request.prompt.assign(all.begin() + i % 3, all.begin() + 4 + 2 * i % 11);
    request.sampling = {.temperature = i % 2 == 0 ? 0.0F : 0.8F, .top_k = 20, .seed = uint64_t(i)};
    if (i == 7) request.sampling.top_k = 0;
    if (i == 9) request.num_logprobs = 2;
    if (i == 3) request.logits.repetition_penalty = 1.5F;
    if (i == 4) request.logits.bias = {{7, 3.0F}};
    request.stopping.max_tokens = 3 + 5 * i % 14;
    request.stopping.ignore_eos = true;
    request.wants_text = false;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(CudaDepthTwo, EveryRequestHasTheTokensOfOneStepAtATime) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const std::vector<Request> requests = MixedRequests(dir);
  RigOptions options;
  options.kv_format = KvFormat::kBF16;
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, false); };
  const auto staged = RunRequests(dir, requests, 1, options);
  options.decode_graphs = true;
  options.pads_decodes = true;
  for (const bool late : {false, true}) {
    std::shared_ptr<emulator::EmulatedCudaDriver> driver;
    options.make_device = [&] {
      return EmulatedDevice(emulator::Schedule::kAscending, late, &driver);
    };
    EXPECT_EQ(RunRequests(dir, requests, 1, options), staged) << late;
    EXPECT_EQ(RunRequests(dir, requests, 2, options), staged) << late;
    EXPECT_GT(driver->graph_launches(), 4);
  }
}

// Copies to the device of a step in which `seqs` sequences each go on in a new block.
int64_t CopiesOfAStep(int seqs) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.kv_format = KvFormat::kBF16;
  std::shared_ptr<emulator::EmulatedCudaDriver> driver;
  int64_t copies = 0;
  RunRanks(1, [&](Group& group) {
    LoadedRunner runner(dir, *ShardPlan::Create(config, 1), limits, group, std::nullopt, [&] {
      return EmulatedDevice(emulator::Schedule::kAscending, true, &driver);
    });
    std::vector<StepRow> prompts, next;
    for (int slot = 0; slot < seqs; ++slot) {
      prompts.push_back({slot, 0, std::vector<int32_t>(limits.block_tokens, 5)});
      next.push_back({slot, limits.block_tokens, {6}, 1});
    }
    ASSERT_TRUE(RunStep(*runner, MakeStep(limits, 1, prompts)).ok());
    Step step = MakeStep(limits, 2, next);
    step.plan.clear_table_slot();
    step.plan.clear_table_index();
    step.plan.clear_table_block();
    for (int slot = 0; slot < seqs; ++slot) {
      step.plan.add_table_slot(slot);
      step.plan.add_table_index(1);
      step.plan.add_table_block(DefaultBlock(limits, slot, 1));
    }
    const int64_t before = driver->copies_to_device();
    ASSERT_TRUE(RunStep(*runner, std::move(step)).ok());
    copies = driver->copies_to_device() - before;
  });
  return copies;
}

TEST(CudaModelCopies, AreNoMoreWhereMoreSequencesTakeABlock) {
  EXPECT_GT(CopiesOfAStep(1), 0);
  EXPECT_EQ(CopiesOfAStep(4), CopiesOfAStep(1));
}

// More entries in all than the list of changes has room for.
TEST(CudaModelCopies, TablesForWhichTheListHasNoRoomAreCopied) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.kv_format = KvFormat::kBF16;
  RunRanks(1, [&](Group& group) {
    LoadedRunner runner(dir, *ShardPlan::Create(config, 1), limits, group, std::nullopt,
                        [] { return EmulatedDevice(emulator::Schedule::kAscending, true); });
    std::vector<StepRow> rows;
    std::vector<float> alone;
    for (int slot = 0; slot < 3; ++slot) {
      rows.push_back({slot, 0, std::vector<int32_t>(limits.block_tokens + 1, 5 + slot), 1});
      const StepOutput one = RunHere(*runner, MakeStep(limits, slot + 1, {rows.back()}));
      alone.insert(alone.end(), one.logits.begin(), one.logits.end());
    }
    Step step = MakeStep(limits, 4, rows);
    for (int entry = 0; entry < 3 * 6; ++entry) {
      step.plan.add_table_slot(entry / 6);
      step.plan.add_table_index(entry % 6);
      step.plan.add_table_block(DefaultBlock(limits, entry / 6, entry % 6));
    }
    EXPECT_GT(3 * 6, MaxTableChanges(limits));
    EXPECT_TRUE(RunHere(*runner, std::move(step)).logits == alone);
  });
}

}  // namespace
}  // namespace bulkhead
