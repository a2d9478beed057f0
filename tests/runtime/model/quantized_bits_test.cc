// Quantised weights keep the promise, too: the same bits at any tensor-parallel degree, batch,
// chunking, number of threads and instruction set, in every format and with either kind of
// activations; and with f32 activations the right ones.
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/isa.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

constexpr int kDecodeTokens = 16;

struct Held {
  const char* name;
  const char* dir;  // in tests/data
  std::optional<WeightFormat> weight_dtype;
  bool in_tiles = false;  // attention, over a cache in bf16
};

constexpr Held kHeld[] = {
    {"awq", "quantised/awq", {}},
    {"gptq", "quantised/gptq", {}},
    {"gptq_act_order", "quantised/gptq_act_order", {}},
    {"packed_int4", "quantised/ct_int4_g32_asym", {}},
    {"packed_mxfp4", "quantised/ct_mxfp4", {}},
    {"packed_nvfp4", "quantised/ct_nvfp4", {}},
    {"gpt_oss_mxfp4", "quantised/gpt_oss_mxfp4", {}},
    {"int8", "models/llama3_gqa_bf16", WeightFormat::kInt8},
    {"int4", "models/llama3_gqa_bf16", WeightFormat::kInt4},
    {"int8_of_uneven_sizes", "models/llama_uneven_f32", WeightFormat::kInt8},
    {"int4_of_uneven_sizes", "models/llama_uneven_f32", WeightFormat::kInt4},
    {"int8_tied", "models/llama32_tied_bf16", WeightFormat::kInt8},
    {"int8_in_tiles", "models/llama3_gqa_bf16", WeightFormat::kInt8, true},
    {"int8_of_latents_in_tiles", "models/deepseek_v2_bf16", WeightFormat::kInt8, true},
    {"int8_of_latents", "models/deepseek_v2_bf16", WeightFormat::kInt8},
    {"int4_of_latents", "models/deepseek_v2_bf16", WeightFormat::kInt4},
};

// Whose weights stay in bf16, with activations in it.
constexpr Held kInBf16[] = {
    {"bf16", "models/llama3_gqa_bf16", {}},
    {"bf16_tied", "models/llama32_tied_bf16", {}},
    {"bf16_of_latents", "models/deepseek_v2_bf16", {}},
    {"bf16_of_experts", "models/qwen2_moe_bf16", {}},
};

class QuantizedBits : public testing::TestWithParam<std::tuple<Held, ActivationDType>> {
 protected:
  QuantizedBits() {
    base_.weight_dtype = held().weight_dtype;
    base_.activation = std::get<1>(GetParam());
    if (InTiles()) {
      base_.backend = "plain_amx";
      base_.attention = AttentionDType::kBf16Amx;
      base_.kv_format = KvFormat::kBF16;
    } else if (base_.activation == ActivationDType::kBf16) {
      base_.attention = AttentionDType::kBf16;
      base_.kv_format = KvFormat::kBF16;
    }
    base_.decode_tokens = kDecodeTokens;
  }
  static const Held& held() { return std::get<0>(GetParam()); }

  bool InTiles() const { return held().in_tiles || base_.activation == ActivationDType::kBf16Amx; }

  RigResult Run(const RigOptions& options) { return RunRig(dir_, golden_.prompts, options); }

  const std::string dir_ = std::string(BH_TEST_DATA) + "/" + held().dir;
  const Golden golden_ = ReadGolden(dir_);
  RigOptions base_;
};

TEST_P(QuantizedBits, AreTheSameAtAnyTensorParallelDegree) {
  const RigResult one = Run(base_);
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(size);
    RigOptions options = base_;
    options.size = size;
    ExpectSameBits(Run(options), one);
  }
  // Near the weights' own answer: exactly it with f32 activations of a quantised checkpoint. A
  // token of a mixture may go to another expert.
  const bool stored = !held().weight_dtype.has_value();
  const bool exact = base_.activation == ActivationDType::kF32;
  const bool in_bf16 = base_.activation == ActivationDType::kBf16 || InTiles();
  const double bound = stored && exact                              ? 1e-4
                       : stored && in_bf16                          ? 0.02
                       : held().weight_dtype == WeightFormat::kInt4 ? 0.6
                                                                    : 0.1;
  for (size_t i = 0; i < golden_.prompts.size(); ++i) {
    EXPECT_LE(RelativeError(one.logits[i], golden_.logits[i]), bound) << "prompt " << i;
  }
}

TEST_P(QuantizedBits, AreTheSameInAnyBatchChunkingThreadsAndInstructionSet) {
  const RigResult want = Run(base_);
  RigOptions alone = base_;
  alone.together = false;
  alone.threads = 3;
  ExpectSameBits(Run(alone), want);
  RigOptions chunks = base_;
  chunks.chunk_tokens = 7;
  chunks.threads = 2;
  chunks.size = 2;
  ExpectSameBits(Run(chunks), want);
  std::vector<std::string> backends = {"ordered"};
  if (InTiles()) {
    if (CheckBf16Tiles(Isa::kAvx512Amx, ActivationDType::kBf16Amx).ok())
      backends.push_back("avx512amx");
  } else {
    backends.insert(backends.end(), {"plain", "avx2"});
    if (IsaPresent(Isa::kAvx512)) backends.push_back("avx512");
  }
  for (const std::string& backend : backends) {
    SCOPED_TRACE(backend);
    RigOptions options = base_;
    options.backend = backend;
    options.chunk_tokens = 64;
    ExpectSameBits(Run(options), want);
  }
}

INSTANTIATE_TEST_SUITE_P(Held, QuantizedBits,
                         testing::Combine(testing::ValuesIn(kHeld),
                                          testing::Values(ActivationDType::kF32,
                                                          ActivationDType::kInt8)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == ActivationDType::kF32 ? "_f32"
                                                                                    : "_int8");
                         });

INSTANTIATE_TEST_SUITE_P(Bf16, QuantizedBits,
                         testing::Combine(testing::ValuesIn(kInBf16),
                                          testing::Values(ActivationDType::kBf16,
                                                          ActivationDType::kBf16Amx)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == ActivationDType::kBf16 ? "" : "_amx");
                         });

TEST(QuantizedBits, ThreeRanksGiveTheGoldenTokens) {
  for (const char* name : {"awq", "gptq", "gptq_act_order", "ct_int4_g32_asym", "ct_mxfp4",
                           "ct_nvfp4", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(BH_TEST_DATA) + "/quantised/" + name;
    const Golden golden = ReadGolden(dir);
    RigOptions options;
    options.size = 3;
    const RigResult result = RunRig(dir, golden.prompts, options);
    for (size_t i = 0; i < golden.prompts.size(); ++i) {
      EXPECT_LE(RelativeError(result.logits[i], golden.logits[i]), 1e-4);
    }
  }
}

}  // namespace
}  // namespace bulkhead
