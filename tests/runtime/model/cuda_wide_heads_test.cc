// Gemma 4 as it is published, with heads of 512 numbers in the layers without a window, whose
// values are their keys, on emulated CUDA devices, against the CPU backend with the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/simd/number_format.h"
#include "memory/kv_format_name.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/runtime/model/rounded_products.h"
#include "tests/shard/checkpoint_files.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

constexpr int kHeadDim = 512;
constexpr int kHeads = 8;
constexpr int kKvHeads = 2;  // of the layers without a window
constexpr int kHiddenSize = 64;

// The fixture with other heads in layers 1 and 4; layer 4 reads what layer 1 has cached.
class WithWideHeads {
 public:
  WithWideHeads() : golden_(ReadGolden(fixture_)), tensors_(ReadRawCheckpoint(fixture_)) {
    nlohmann::json config = nlohmann::json::parse(ReadFile(fixture_ + "/config.json"));
    config.erase("per_layer_config");
    config["global_head_dim"] = kHeadDim;
    config["num_global_key_value_heads"] = kKvHeads;
    config["attention_k_eq_v"] = true;
    for (const char* const layer : {"1", "4"}) {
      Put(layer, "q_proj", {kHeads * kHeadDim, kHiddenSize}, 0, 0.2F);
      Put(layer, "o_proj", {kHiddenSize, kHeads * kHeadDim}, 0, 0.05F);
      Put(layer, "q_norm", {kHeadDim}, 0.25F, 0.1F);
    }
    Put("1", "k_proj", {kKvHeads * kHeadDim, kHiddenSize}, 0, 0.2F);
    Put("1", "k_norm", {kHeadDim}, 0.25F, 0.1F);
    tensors_.erase("model.layers.1.self_attn.v_proj.weight");
    std::vector<RawTensor> list;
    for (auto& [name, tensor] : tensors_) list.push_back(std::move(tensor));
    WriteFile(folder_.File("config.json"), config.dump());
    WriteFile(folder_.File("model.safetensors"), SafetensorsBytes(list));
  }

  RigResult Run(const RigOptions& options) const {
    std::vector<std::vector<int32_t>> prompts = golden_.prompts;
    if (prompts.size() == 3) prompts.push_back(LongPrompt(golden_, 60));
    return RunRig(folder_.path(), prompts, options);
  }
  int64_t vocab_size() const { return golden_.vocab_size; }

 private:
  // Numbers in middle +- width.
  void Put(const std::string& layer, const std::string& part, std::vector<int64_t> shape,
           float middle, float width) {
    const std::string name = "model.layers." + layer + ".self_attn." + part + ".weight";
    RawTensor& tensor = tensors_.at(name);
    const int64_t count = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
    std::uniform_real_distribution<float> number(middle - width, middle + width);
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values) value = Bf16OfF32(number(random_));
    tensor = {name, "BF16", std::move(shape),
              std::string(reinterpret_cast<const char*>(values.data()), values.size() * 2)};
  }

  const std::string fixture_ = std::string(BH_TEST_DATA) + "/models/gemma4_bf16";
  const Golden golden_;
  const TemporaryFolder folder_;
  std::map<std::string, RawTensor> tensors_;
  std::mt19937 random_{512};
};

struct WideHeadsCase {
  int size = 1;
  KvFormat kv_format = KvFormat::kBF16;
  int chunk_tokens = 40;  // 1: as tokens are decoded
};
void PrintTo(const WideHeadsCase& c, std::ostream* out) {
  *out << "tp " << c.size << ", " << KvFormatName(c.kv_format) << ", by " << c.chunk_tokens;
}

class CudaWideHeads : public testing::TestWithParam<WideHeadsCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaWideHeads,
                         testing::Values(WideHeadsCase{}, WideHeadsCase{.chunk_tokens = 1},
                                         WideHeadsCase{.size = 2},
                                         WideHeadsCase{2, KvFormat::kInt8, 7}));

TEST_P(CudaWideHeads, OfGemma4AgreeWithTheCpu) {
  const WideHeadsCase& c = GetParam();
  const WithWideHeads model;
  RigOptions options;
  options.size = c.size;
  options.kv_format = c.kv_format;
  options.chunk_tokens = c.chunk_tokens;
  options.make_device = DeviceOfRoundedProducts;
  const RigResult cpu = model.Run(options);
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  const RigResult cuda = model.Run(options);
  for (size_t i = 0; i < cpu.logits.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    ExpectLikeCpu(cuda.logits[i], cpu.logits[i], model.vocab_size(), c.kv_format);
  }
}

}  // namespace
}  // namespace bulkhead
