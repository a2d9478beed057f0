// What the golden of Gemma 4 does not have, against a checkpoint of the same function that needs
// less: values that are keys, fewer KV heads where there is no window, wider MLPs of the layers
// that read another's cache.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "comm/local/local_group.h"
#include "nlohmann/json.hpp"
#include "tests/shard/checkpoint_files.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

using nlohmann::json;

// The fixture: layers 1 and 4 see all, with heads of 32 columns; 3 and 4 read what 2 and 1 cached.
class Gemma4VariantsTest : public testing::Test {
 protected:
  using Tensors = std::map<std::string, RawTensor>;

  static std::string Layer(int layer, const char* name) {
    return "model.layers." + std::to_string(layer) + "." + name + ".weight";
  }
  // Rows [begin, end) of a matrix of bfloat16.
  static std::string Rows(const RawTensor& tensor, int64_t begin, int64_t end) {
    const int64_t bytes = 2 * tensor.shape[1];
    return tensor.bytes.substr(begin * bytes, (end - begin) * bytes);
  }

  // Results of the checkpoint that `change` makes of the fixture.
  RigResult Run(const std::function<void(json& config, Tensors& tensors)>& change,
                const RigOptions& options) {
    json config = json::parse(ReadFile(dir_ + "/config.json"));
    Tensors tensors = ReadRawCheckpoint(dir_);
    change(config, tensors);
    std::vector<RawTensor> list;
    for (auto& [name, tensor] : tensors) list.push_back(std::move(tensor));
    const TemporaryFolder folder;
    WriteFile(folder.File("config.json"), config.dump());
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes(list));
    return RunRig(folder.path(), golden_.prompts, options);
  }

  const std::string dir_ = std::string(BH_TEST_DATA) + "/models/gemma4_bf16";
  const Golden golden_ = ReadGolden(dir_);
};

TEST_F(Gemma4VariantsTest, ValuesMayBeKeys) {
  const auto two_tensors = [](json&, Tensors& tensors) {
    tensors[Layer(1, "self_attn.v_proj")].bytes = tensors[Layer(1, "self_attn.k_proj")].bytes;
  };
  const auto one_tensor = [](json& config, Tensors& tensors) {
    config["attention_k_eq_v"] = true;
    tensors.erase(Layer(1, "self_attn.v_proj"));
  };
  for (const int size : {1, 2, 8}) {
    SCOPED_TRACE(size);
    RigOptions options{.decode_tokens = 8};
    const RigResult want = Run(two_tensors, options);
    EXPECT_GT(RelativeError(want.logits.back(), golden_.logits.back()), 1e-3);
    options.size = size;
    options.chunk_tokens = size == 2 ? 7 : 512;
    ExpectSameBits(Run(one_tensor, options), want);
  }
}

// Two KV heads of layer 1 stand for four, of which each two are alike.
TEST_F(Gemma4VariantsTest, LayersWithoutAWindowMayHaveFewerKvHeads) {
  const auto four = [](json&, Tensors& tensors) {
    for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"}) {
      RawTensor& tensor = tensors[Layer(1, name)];
      const std::string first = Rows(tensor, 0, 32), second = Rows(tensor, 32, 64);
      tensor.bytes = first + first + second + second;
    }
  };
  const auto two = [](json& config, Tensors& tensors) {
    for (const char* layer : {"1", "4"}) {
      config["per_layer_config"][layer]["num_key_value_heads"] = 2;
    }
    for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"}) {
      RawTensor& tensor = tensors[Layer(1, name)];
      tensor.bytes = Rows(tensor, 0, 64);
      tensor.shape[0] = 64;
    }
  };
  const RigResult want = Run(four, {.decode_tokens = 8});
  for (const int size : {1, 2, 4, 8}) {
    for (const char* backend : {"auto", "ordered"}) {
      SCOPED_TRACE(testing::Message() << size << " " << backend);
      RigOptions options{.size = size, .backend = backend, .decode_tokens = 8};
      options.threads = size == 1 ? 3 : 1;
      options.chunk_tokens = size == 4 ? 13 : 512;
      ExpectSameBits(Run(two, options), want);
    }
  }
}

// The columns that a wider MLP has more are of no effect: sums are of other leaves.
TEST_F(Gemma4VariantsTest, LayersThatShareACacheMayHaveWiderMlps) {
  const auto wide = [](json& config, Tensors& tensors) {
    config["use_double_wide_mlp"] = true;
    for (const int layer : {3, 4}) {
      for (const char* name : {"mlp.gate_proj", "mlp.up_proj"}) {
        RawTensor& tensor = tensors[Layer(layer, name)];
        tensor.bytes += std::string(tensor.bytes.size(), '\0');
        tensor.shape[0] *= 2;
      }
      RawTensor& down = tensors[Layer(layer, "mlp.down_proj")];
      std::string bytes;
      for (int64_t row = 0; row < down.shape[0]; ++row) {
        const std::string values = Rows(down, row, row + 1);
        bytes += values + std::string(values.size(), '\0');
      }
      down.bytes = bytes;
      down.shape[1] *= 2;
    }
  };
  const RigResult want = Run(wide, {.decode_tokens = 8});
  for (size_t i = 0; i < golden_.prompts.size(); ++i) {
    EXPECT_LE(RelativeError(want.logits[i], golden_.logits[i]), 1e-4);
  }
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(size);
    ExpectSameBits(Run(wide, {.size = size, .decode_tokens = 8}), want);
  }
}

// As in published checkpoints: tensors of layers that read another's cache, which nothing reads.
TEST_F(Gemma4VariantsTest, KeysOfLayersThatShareACacheMayBeThere) {
  const auto more = [](json&, Tensors& tensors) {
    for (const char* name : {"self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"}) {
      RawTensor tensor = tensors[Layer(2, name)];
      tensor.name = Layer(3, name);
      tensors[tensor.name] = tensor;
    }
  };
  ExpectSameBits(Run(more, {.decode_tokens = 8}),
                 RunRig(dir_, golden_.prompts, {.decode_tokens = 8}));
}

TEST_F(Gemma4VariantsTest, TokensThatOneSumDoesNotHoldAreLookedUpByTheNext) {
  const ModelConfig config = LoadedRunner::ReadConfig(dir_);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  const ModelLimits limits = LoadedRunner::Limits(config);
  LoadedRunner runner(dir_, plan, limits, *group);
  const std::vector<int32_t>&first = golden_.prompts[3], &last = golden_.prompts[1];
  const auto tokens = static_cast<int64_t>(first.size() + last.size());
  ASSERT_GT(tokens * config.num_hidden_layers * config.per_layer_input_size,
            MaxSumElements(config, limits.max_num_batched_tokens));
  const auto num_last = static_cast<int>(last.size());
  const std::vector<float> both =
      RunHere(*runner, MakeStep(limits, 1, {{0, 0, first, 1}, {1, 0, last, num_last}})).logits;
  const std::vector<float> alone =
      RunHere(*runner, MakeStep(limits, 2, {{2, 0, last, num_last}})).logits;
  ASSERT_GT(both.size(), alone.size());
  EXPECT_EQ(std::vector<float>(both.end() - static_cast<int64_t>(alone.size()), both.end()), alone);
}

// Without inputs of each layer, as the larger models are: the tokens' part of them counts.
TEST_F(Gemma4VariantsTest, InputsOfTheLayersMayBeAbsent) {
  const auto without = [](json& config, Tensors& tensors) {
    config["hidden_size_per_layer_input"] = 0;
    std::erase_if(tensors, [](const auto& tensor) {
      return tensor.first.find("per_layer") != std::string::npos;
    });
  };
  const RigResult want = Run(without, {.decode_tokens = 8});
  EXPECT_GT(RelativeError(want.logits.back(), golden_.logits.back()), 1e-3);
  ExpectSameBits(Run(without, {.size = 4, .decode_tokens = 8}), want);
}

}  // namespace
}  // namespace bulkhead
