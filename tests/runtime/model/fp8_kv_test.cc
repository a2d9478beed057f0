// An fp8 cache with the scales of a checkpoint: they are found under each of their names, they go
// to the ranks with the KV heads, and logits are near those of a cache in f32 where they fit the
// numbers.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/model/rewritten.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

using nlohmann::json;

json Fp8Scheme() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "dense"},
          {"config_groups", json::object()},
          {"ignore", json::array()},
          {"kv_cache_scheme",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}}}};
}

// A model of tests/data/models whose layers have these scales: numbers of keys, and of values.
struct Scaled {
  explicit Scaled(const std::string& model) : checkpoint(model, "models") {}

  // put(module of a layer's attention, its number)
  template <typename Put>
  void ForLayers(const Put& put) {
    int layer = 0;
    checkpoint.ForModules("o_proj.weight", [&](const std::string& attention) {
      put(attention, layer);
      ++layer;
    });
  }
  void PutEach(const std::string& names, const std::vector<int64_t>& shape,
               const std::vector<float>& keys, const std::vector<float>& values) {
    ForLayers([&](const std::string& attention, int) {
      const size_t at = names.find('*');
      const auto name = [&](const char* part) {
        std::string text = names;
        for (size_t star = at; star != std::string::npos; star = text.find('*')) {
          text.replace(star, 1, part);
        }
        return absl::StrCat(attention, ".", text);
      };
      checkpoint.Put(name("k"), "F32", shape, keys);
      checkpoint.Put(name("v"), "F32", shape, values);
    });
  }
  RigResult Run(const RigOptions& options) {
    checkpoint.Write(Fp8Scheme());
    return RunRig(checkpoint.dir(), ReadGolden(checkpoint.from()).prompts, options);
  }

  Rewritten checkpoint;
};

RigOptions Fp8() {
  RigOptions options;
  options.kv_format = KvFormat::kFP8;
  return options;
}

// The greatest of the prompts'.
double ErrorBetween(const std::vector<std::vector<float>>& got,
                    const std::vector<std::vector<float>>& want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) most = std::max(most, RelativeError(got[i], want[i]));
  return most;
}

TEST(Fp8Kv, ScalesOfEachHeadGoWithItToItsRank) {
  Scaled model("llama3_gqa_bf16");
  model.PutEach("*_proj.*_scale", {4}, {0.05F, 0.1F, 0.15F, 0.2F}, {0.03F, 0.06F, 0.1F, 0.2F});
  RigOptions options = Fp8();
  options.decode_tokens = 8;
  const RigResult want = model.Run(options);
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(size);
    options.size = size;
    options.chunk_tokens = size == 2 ? 13 : size == 4 ? 1 : 512;
    options.block_tokens = size == 2 ? 64 : 16;
    options.threads = size == 2 ? 2 : 1;
    ExpectSameBits(model.Run(options), want);
  }
  for (const char* backend : {"ordered", "plain", "avx2"}) {
    SCOPED_TRACE(backend);
    RigOptions other = Fp8();
    other.decode_tokens = 8;
    other.backend = backend;
    ExpectSameBits(model.Run(other), want);
  }
  EXPECT_LT(ErrorBetween(want.logits, ReadGolden(model.checkpoint.from()).logits), 0.12);
  Scaled swapped("llama3_gqa_bf16");
  swapped.PutEach("*_proj.*_scale", {4}, {0.1F, 0.05F, 0.15F, 0.2F}, {0.03F, 0.06F, 0.1F, 0.2F});
  RigOptions one = Fp8();
  one.decode_tokens = 8;
  EXPECT_NE(swapped.Run(one).logits, want.logits);
}

TEST(Fp8Kv, ScalesMayHaveAnyOfTheirNamesAndBeOneNumber) {
  Scaled usual("llama3_gqa_bf16");
  usual.PutEach("*_proj.*_scale", {4}, std::vector<float>(4, 0.03F), std::vector<float>(4, 0.02F));
  const RigResult want = usual.Run(Fp8());
  for (const char* names :
       {"*_proj.*_scale", "*_scale", "attn.*_scale", "qkv_proj.*_scale", "*_proj.output_scale"}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
      SCOPED_TRACE(names);
      Scaled other("llama3_gqa_bf16");
      other.PutEach(names, shape, {0.03F}, {0.02F});
      RigOptions options = Fp8();
      options.size = 2;
      ExpectSameBits(other.Run(options), want);
    }
  }
}

TEST(Fp8Kv, ScalesThatAreMissingAreOne) {
  Scaled ones("llama3_gqa_bf16");
  ones.PutEach("*_scale", {1}, {1}, {1});
  Scaled without("llama3_gqa_bf16");
  const RigResult want = without.Run(Fp8());
  ExpectSameBits(ones.Run(Fp8()), want);
  // And so they are where nothing says that there are any.
  const std::string from = without.checkpoint.from();
  ExpectSameBits(RunRig(from, ReadGolden(from).prompts, Fp8()), want);
}

TEST(Fp8Kv, OtherCachesTakeNoNoticeOfScales) {
  Scaled model("llama3_gqa_bf16");
  model.PutEach("*_scale", {1}, {1e-3F}, {1e-3F});
  const RigResult got = model.Run({});
  ExpectSameBits(got,
                 RunRig(model.checkpoint.from(), ReadGolden(model.checkpoint.from()).prompts, {}));
}

// Where the key scale is 2^-4 for one layer and another power of two for the next, a layer that
// reads its keys or values by others' scales is far off.
class Fp8KvOfModels : public testing::TestWithParam<const char*> {};

TEST_P(Fp8KvOfModels, IsNearTheCacheInF32AndTheSameAtEverySize) {
  Scaled model(GetParam());
  const bool latent = std::string(GetParam()).starts_with("deepseek");
  model.ForLayers([&](const std::string& attention, int layer) {
    const auto put = [&](const char* name, int exponent) {
      model.checkpoint.Put(absl::StrCat(attention, name), "BF16", {1},
                           std::vector<uint16_t>{uint16_t((127 + exponent) << 7)});
    };
    put(".k_scale", -4 - layer % 3);
    if (!latent) put(".v_scale", -5 + layer % 3);
  });
  const Golden golden = ReadGolden(model.checkpoint.from());
  RigOptions options = Fp8();
  options.decode_tokens = 4;
  const RigResult one = model.Run(options);
  EXPECT_LT(ErrorBetween(one.logits, golden.logits), 0.4);
  // By powers of two the same codes, unless they are subnormal or saturated: their errors are
  // alike.
  const RigResult other = RunRig(model.checkpoint.from(), golden.prompts, options);
  EXPECT_LT(ErrorBetween(one.logits, other.logits), 0.03);
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(size);
    options.size = size;
    options.chunk_tokens = size == 4 ? 7 : 512;
    ExpectSameBits(model.Run(options), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8KvOfModels,
                         testing::Values("llama3_gqa_bf16", "gemma4_bf16", "deepseek_v3_bf16",
                                         "mistral_window_bf16", "gpt_oss_bf16", "phi3_bf16",
                                         "qwen3_next_bf16", "gemma2_bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bulkhead
