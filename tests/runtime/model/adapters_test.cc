// Requests with LoRA adapters: what they get is what the merged checkpoint gives, beside requests
// of other adapters and of the model alone, and with the same bits however it is computed.
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "memory/bf16.h"
#include "nlohmann/json.hpp"
#include "shard/adapter.h"
#include "tests/shard/checkpoint_files.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

using nlohmann::json;

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> at;
};

// Of numbers that bf16 has, in which adapters may be held.
Matrix RandomMatrix(int64_t rows, int64_t cols, float size, std::mt19937& random) {
  std::normal_distribution<float> values(0, size);
  Matrix matrix{rows, cols, std::vector<float>(rows * cols)};
  for (float& value : matrix.at) value = F32OfBf16(Bf16OfF32(values(random)));
  return matrix;
}

RawTensor TensorOf(const std::string& name, const Matrix& matrix) {
  return {name,
          "F32",
          {matrix.rows, matrix.cols},
          std::string(reinterpret_cast<const char*>(matrix.at.data()),
                      matrix.at.size() * sizeof(float))};
}

std::vector<float> FloatsOf(const RawTensor& tensor) {
  if (tensor.format == "F32") {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  std::vector<uint16_t> halves(tensor.bytes.size() / 2);
  std::memcpy(halves.data(), tensor.bytes.data(), tensor.bytes.size());
  std::vector<float> values;
  for (const uint16_t half : halves) {
    if (tensor.format == "F16") {
      _Float16 number;
      std::memcpy(&number, &half, sizeof(number));
      values.push_back(static_cast<float>(number));
    } else {
      const uint32_t bits = uint32_t{half} << 16;
      float number;
      std::memcpy(&number, &bits, sizeof(number));
      values.push_back(number);
    }
  }
  return values;
}

// The linear layers of attention and MLP, by the names of their tensors.
std::map<std::string, TensorRow> ModulesOf(const ModelConfig& config) {
  std::map<std::string, TensorRow> modules;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const TensorRow& row : LayerTensors(config, layer)) {
      if (IsAdaptable(row)) modules.emplace(row.Name(), row);
    }
  }
  return modules;
}

// A checkpoint's adapter, and the checkpoint with it in f32.
class MergedAdapter {
 public:
  MergedAdapter(const std::string& model_dir, int rank, const json& config, double scale) {
    std::mt19937 random(rank);
    std::map<std::string, RawTensor> merged = ReadRawCheckpoint(model_dir);
    std::vector<RawTensor> adapter;
    for (const auto& [name, row] : ModulesOf(FixtureConfig(model_dir))) {
      const float size = 1 / std::sqrt(static_cast<float>(row.cols));
      const Matrix a = RandomMatrix(rank, row.cols, size, random);
      const Matrix b = RandomMatrix(row.FileSize(), rank, 0.3F, random);
      const std::string module = "base_model.model." + row.Module();
      adapter.push_back(TensorOf(module + ".lora_A.weight", a));
      adapter.push_back(TensorOf(module + ".lora_B.weight", b));
      Matrix sum{b.rows, a.cols, FloatsOf(merged.at(name))};
      for (int64_t i = 0; i < sum.rows; ++i) {
        for (int64_t k = 0; k < sum.cols; ++k) {
          double product = 0;
          for (int64_t r = 0; r < rank; ++r) product += b.at[i * rank + r] * a.at[r * a.cols + k];
          sum.at[i * sum.cols + k] += static_cast<float>(scale * product);
        }
      }
      merged[name] = TensorOf(name, sum);
    }
    WriteFile(adapter_.File("adapter_config.json"), config.dump());
    WriteFile(adapter_.File("adapter_model.safetensors"), SafetensorsBytes(adapter));
    json model = json::parse(ReadFile(model_dir + "/config.json"));
    for (const char* field : {"dtype", "torch_dtype"}) model[field] = "float32";
    for (const char* part : {"text_config"}) {
      if (model.contains(part)) model[part]["dtype"] = model[part]["torch_dtype"] = "float32";
    }
    WriteFile(model_.File("config.json"), model.dump());
    std::vector<RawTensor> list;
    for (const auto& [name, tensor] : merged) list.push_back(tensor);
    WriteFile(model_.File("model.safetensors"), SafetensorsBytes(list));
  }

  const std::string& adapter() const { return adapter_.path(); }
  const std::string& model() const { return model_.path(); }

 private:
  const TemporaryFolder adapter_;
  const TemporaryFolder model_;
};

class Adapters : public testing::TestWithParam<std::string> {};

TEST_P(Adapters, GiveWhatTheMergedCheckpointGives) {
  const std::string dir = GetParam();
  const Golden golden = ReadGolden(dir);
  const MergedAdapter small(dir, 3, {{"peft_type", "LORA"}, {"r", 3}, {"lora_alpha", 6}}, 2);
  const MergedAdapter large(
      dir, 16, {{"r", 16}, {"lora_alpha", 8}, {"use_rslora", true}, {"bias", "none"}}, 2);
  const std::vector<std::vector<int32_t>> prompts = {golden.prompts[0], golden.prompts[1],
                                                     golden.prompts[0], golden.prompts[1],
                                                     golden.prompts[0]};
  RigOptions options;
  options.decode_tokens = 8;
  const RigResult base = RunRig(dir, prompts, options);
  const RigResult of_small = RunRig(small.model(), prompts, options);
  const RigResult of_large = RunRig(large.model(), prompts, options);
  options.adapters = {small.adapter(), large.adapter()};
  options.adapter_of_prompt = {0, 1, 2, 2, 1};
  const RigResult got = RunRig(dir, prompts, options);
  const RigResult* const want[] = {&base, &of_small, &of_large, &of_large, &of_small};
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_LE(RelativeError(got.logits[i], want[i]->logits[i]), 1e-4);
    EXPECT_EQ(got.greedy_ids[i], want[i]->greedy_ids[i]);
    if (i > 0) {
      EXPECT_GT(RelativeError(got.logits[i], base.logits[i]), 1e-2);
    }
  }
  EXPECT_EQ(got.logits[0], base.logits[0]);  // bit by bit
  for (const int size : {2, 4}) {
    SCOPED_TRACE(size);
    RigOptions split = options;
    split.size = size;
    split.chunk_tokens = size == 2 ? 512 : 5;
    split.backend = size == 2 ? "plain" : "auto";
    ExpectSameBits(RunRig(dir, prompts, split), got);
  }
  RigOptions alone = options;
  alone.together = false;
  alone.threads = 2;
  ExpectSameBits(RunRig(dir, prompts, alone), got);
  RigOptions full = alone;  // steps of as many tokens as there are rows, on narrow ranks
  full.size = 8;
  full.chunk_tokens = full.max_num_batched_tokens = static_cast<int>(prompts[1].size());
  ExpectSameBits(RunRig(dir, prompts, full), got);
}

TEST(AdaptersOfPeft, GiveWhatPeftGives) {
  for (const std::string name : {"gemma2_bf16", "phi3_bf16", "qwen2_bf16"}) {
    SCOPED_TRACE(name);
    const std::string dir = BH_TEST_DATA "/adapters/" + name;
    const Golden golden = ReadGolden(dir);
    RigOptions options;
    options.decode_tokens = 32;
    options.adapters = {dir};
    options.adapter_of_prompt.assign(golden.prompts.size(), 1);
    options.size = 2;
    options.weight_dtype = WeightFormat::kF32;  // their numbers are more than bf16 has
    const RigResult got = RunRig(BH_TEST_DATA "/models/" + name, golden.prompts, options);
    for (size_t i = 0; i < golden.prompts.size(); ++i) {
      EXPECT_LE(RelativeError(got.logits[i], golden.logits[i]), 1e-4) << i;
    }
    EXPECT_EQ(got.greedy_ids, golden.greedy_ids);
  }
}

constexpr char kModel[] = BH_TEST_DATA "/models/llama3_gqa_bf16";

TEST(AdaptersOfRequests, ArePlannedToTheByteAndShareNoCache) {
  const Golden golden = ReadGolden(kModel);
  const MergedAdapter small(kModel, 3, {{"r", 3}, {"lora_alpha", 6}}, 2);
  const MergedAdapter large(kModel, 8, {{"r", 8}, {"lora_alpha", 8}}, 1);
  const auto& shorter = golden.prompts[1];
  const auto& longer = golden.prompts[2];  // of two blocks
  RigOptions options;
  options.decode_tokens = 12;
  options.adapters = {small.adapter(), large.adapter()};
  options.adapter_of_prompt = {0, 1, 2, 0, 1, 2};
  const std::vector<std::vector<int32_t>> want =
      RunRig(kModel, {shorter, shorter, shorter, longer, longer, longer}, options).greedy_ids;
  options.prefix_caching = true;
  options.max_num_batched_tokens = 16;
  int preemptions = 0;
  options.preemptions = &preemptions;
  options.kv_groups = true;  // a pool that one sequence of the full length fills
  options.max_model_len = 64;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = std::to_string(i);
    request.prompt = i % 6 < 3 ? shorter : longer;
    request.sampling.temperature = 0;
    request.stopping.max_tokens = 12;
    request.stopping.ignore_eos = true;
    request.adapter = i % 3;
    if (request.adapter > 0) request.adapter_name = request.adapter == 1 ? "small" : "large";
  }
  for (const int size : {1, 2}) {
    SCOPED_TRACE(size);
    options.size = size;
    const auto got = RunRequests(kModel, requests, 1, options);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i % 6]) << i;
  }
  EXPECT_GT(preemptions, 0);
}

TEST(AdaptersOfRequests, HaveTheSameBitsAtAnySizeWithRoundedActivations) {
  const Golden golden = ReadGolden(kModel);
  const MergedAdapter narrow(kModel, 5, {{"r", 5}, {"lora_alpha", 6}}, 1.2);
  const MergedAdapter wide(kModel, 16, {{"r", 16}, {"lora_alpha", 16}}, 1);
  const std::vector<std::vector<int32_t>> prompts = {golden.prompts[0], golden.prompts[1],
                                                     golden.prompts[2]};
  RigOptions options;
  options.decode_tokens = 8;
  options.adapters = {narrow.adapter(), wide.adapter()};
  options.adapter_of_prompt = {1, 2, 1};
  const RigResult exact = RunRig(kModel, prompts, options);
  for (const auto& [activation, backend] :
       {std::pair{ActivationDType::kBf16, "plain"}, {ActivationDType::kBf16Amx, "plain_amx"}}) {
    SCOPED_TRACE(backend);
    options.activation = activation;
    options.backend = backend;
    const RigResult got = RunRig(kModel, prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_LE(RelativeError(got.logits[i], exact.logits[i]), 0.05) << i;
    }
    RigOptions split = options;
    split.size = 2;
    split.chunk_tokens = 3;
    ExpectSameBits(RunRig(kModel, prompts, split), got);
  }
}

TEST(AdaptersOfRequests, AreAddedToQuantisedWeightsToo) {
  const Golden golden = ReadGolden(kModel);
  const MergedAdapter adapter(kModel, 8, {{"r", 8}, {"lora_alpha", 8}}, 1);
  const std::vector<std::vector<int32_t>> prompts = {golden.prompts[1], golden.prompts[2]};
  RigOptions options;
  options.adapters = {adapter.adapter()};
  options.adapter_of_prompt = {1, 1};
  const RigResult exact = RunRig(kModel, prompts, options);
  options.weight_dtype = WeightFormat::kInt8;
  options.activation = ActivationDType::kInt8;
  const RigResult got = RunRig(kModel, prompts, options);
  EXPECT_LE(RelativeError(got.logits[1], exact.logits[1]), 0.1);
  options.size = 2;
  options.chunk_tokens = 3;
  ExpectSameBits(RunRig(kModel, prompts, options), got);
}

std::vector<std::string> AdaptableModels() {
  std::vector<std::string> dirs;
  for (const std::string& dir : FixtureDirs()) {
    if (std::filesystem::exists(dir + "/golden.safetensors") &&
        !FixtureConfig(dir).moe.beside_mlp) {
      dirs.push_back(dir);
    }
  }
  return dirs;
}

INSTANTIATE_TEST_SUITE_P(, Adapters, testing::ValuesIn(AdaptableModels()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

}  // namespace
}  // namespace bulkhead
