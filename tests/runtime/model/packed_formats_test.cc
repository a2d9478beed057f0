// The same weights in other formats of a checkpoint are the same model, to the bit: GPTQ as
// compressed-tensors packs it, 4 bits as 8, a scale for each output as one for each group.
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/model/rewritten.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

using nlohmann::json;

// A GPTQ module as pack-quantized has it.
void PackGptq(Rewritten& checkpoint, const std::string& stem, bool symmetric) {
  const RawTensor qweight = checkpoint.Take(stem + ".qweight");
  const int64_t inputs = qweight.shape[0] * 8, outputs = qweight.shape[1];
  const Codes codes = Codes::Unpack(ValuesOf<uint32_t>(qweight), inputs, outputs, false);
  Codes by_output(outputs, inputs);
  by_output.at = Transposed(codes.at, inputs, outputs);
  checkpoint.Put(stem + ".weight_packed", "I32", {outputs, inputs / 8}, by_output.Pack(true));
  const RawTensor scales = checkpoint.Take(stem + ".scales");
  const int64_t groups = scales.shape[0];
  checkpoint.Put(stem + ".weight_scale", "F16", {outputs, groups},
                 Transposed(ValuesOf<uint16_t>(scales), groups, outputs));
  checkpoint.Put(stem + ".weight_shape", "I64", {2}, std::vector<int64_t>{outputs, inputs});
  Codes zeros =
      Codes::Unpack(ValuesOf<uint32_t>(checkpoint.Take(stem + ".qzeros")), groups, outputs, true);
  for (uint8_t& zero : zeros.at) {
    ++zero;  // as GPTQ means it
    ASSERT_TRUE(symmetric ? zero == 8 : zero < 16);
  }
  const std::vector<int32_t> index = ValuesOf<int32_t>(checkpoint.Take(stem + ".g_idx"));
  if (symmetric) return;
  Codes zeros_by_output(outputs, groups);
  zeros_by_output.at = Transposed(zeros.at, groups, outputs);
  checkpoint.Put(stem + ".weight_zero_point", "I32", {outputs / 8, groups},
                 zeros_by_output.Pack(false));
  checkpoint.Put(stem + ".weight_g_idx", "I32", {inputs}, index);
}

// The codes of a module of ct_int4_g32_asym without their zeros, from -15 to 15: [outputs, inputs].
struct Module {
  int64_t outputs, inputs, groups;
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;

  Module(Rewritten& checkpoint, const std::string& stem) {
    const RawTensor packed = checkpoint.Take(stem + ".weight_packed");
    const RawTensor scale = checkpoint.Take(stem + ".weight_scale");
    outputs = packed.shape[0];
    inputs = packed.shape[1] * 8;
    groups = scale.shape[1];
    scales = ValuesOf<uint16_t>(scale);
    const Codes all = Codes::Unpack(ValuesOf<uint32_t>(packed), outputs, inputs, true);
    const Codes zeros = Codes::Unpack(
        ValuesOf<uint32_t>(checkpoint.Take(stem + ".weight_zero_point")), outputs, groups, false);
    checkpoint.Take(stem + ".weight_shape");
    for (int64_t i = 0; i < outputs * inputs; ++i) {
      codes.push_back(static_cast<int8_t>(all.at[i] - zeros.at[i / (inputs / groups)]));
    }
  }
  std::vector<uint8_t> Packed() const {
    std::vector<uint8_t> bytes;
    for (const int8_t code : codes) bytes.push_back(static_cast<uint8_t>(code + 128));
    return bytes;
  }
};

TEST(PackedFormats, GptqPackedByCompressedTensorsIsTheSameModel) {
  Rewritten symmetric("gptq");
  symmetric.ForModules("qweight",
                       [&](const std::string& stem) { PackGptq(symmetric, stem, true); });
  json weights = {{"num_bits", 4},       {"type", "int"},    {"symmetric", true},
                  {"strategy", "group"}, {"group_size", 32}, {"actorder", "weight"}};
  symmetric.Write("pack-quantized", weights);
  ExpectSameModel(symmetric.dir(), symmetric.from());
  Rewritten act_order("gptq_act_order");
  act_order.ForModules("qweight",
                       [&](const std::string& stem) { PackGptq(act_order, stem, false); });
  weights["symmetric"] = false;
  weights["actorder"] = "group";
  act_order.Write("pack-quantized", weights);
  ExpectSameModel(act_order.dir(), act_order.from());
}

TEST(PackedFormats, FourBitsAreTheGoldenModelInEight) {
  Rewritten checkpoint("ct_int4_g32_asym");
  checkpoint.ForModules("weight_packed", [&](const std::string& stem) {
    const Module module(checkpoint, stem);
    checkpoint.Put(stem + ".weight_packed", "I32", {module.outputs, module.inputs / 4},
                   module.Packed());
    checkpoint.Put(stem + ".weight_scale", "BF16", {module.outputs, module.groups}, module.scales);
  });
  checkpoint.Write("pack-quantized", {{"num_bits", 8},
                                      {"type", "int"},
                                      {"symmetric", true},
                                      {"strategy", "group"},
                                      {"group_size", 32}});
  const Golden golden = ReadGolden(checkpoint.from());
  RigOptions options;
  options.size = 2;
  const RigResult result = RunRig(checkpoint.dir(), golden.prompts, options);
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    EXPECT_LE(RelativeError(result.logits[i], golden.logits[i]), 1e-4);
  }
  ExpectSameModel(checkpoint.dir(), checkpoint.from());
}

TEST(PackedFormats, AScaleForEachOutputIsOneForEachGroup) {
  Rewritten channels("ct_int4_g32_asym");
  Rewritten groups("ct_int4_g32_asym");
  channels.ForModules("weight_packed", [&](const std::string& stem) {
    const Module module(channels, stem);
    const Module same(groups, stem);
    std::vector<uint16_t> scales, repeated;
    for (int64_t row = 0; row < module.outputs; ++row) {
      scales.push_back(module.scales[row * module.groups]);
      repeated.insert(repeated.end(), module.inputs / 128, scales.back());
    }
    channels.Put(stem + ".weight", "I8", {module.outputs, module.inputs}, module.codes);
    channels.Put(stem + ".weight_scale", "BF16", {module.outputs, 1}, scales);
    groups.Put(stem + ".weight_packed", "I32", {module.outputs, module.inputs / 4},
               module.Packed());
    groups.Put(stem + ".weight_scale", "BF16", {module.outputs, module.inputs / 128}, repeated);
  });
  json weights = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
  channels.Write("int-quantized", weights);
  weights["strategy"] = "group";
  weights["group_size"] = 128;
  groups.Write("pack-quantized", weights);
  const std::vector<std::vector<int32_t>> prompts = ReadGolden(groups.from()).prompts;
  for (const ActivationDType activation : {ActivationDType::kF32, ActivationDType::kInt8}) {
    RigOptions options;
    options.activation = activation;
    options.size = 2;
    ExpectSameBits(RunRig(channels.dir(), prompts, options),
                   RunRig(groups.dir(), prompts, options));
  }
}

// The factor of a tensor is a power of two, so that one over it is exact.
TEST(PackedFormats, Nvfp4OfModelOptIsTheSameModel) {
  Rewritten packed("ct_nvfp4");
  Rewritten modelopt("ct_nvfp4");
  packed.ForModules("weight_packed", [&](const std::string& stem) {
    packed.Put(stem + ".weight_global_scale", "F32", {1}, std::vector<float>{1024});
    const RawTensor codes = modelopt.Take(stem + ".weight_packed");
    modelopt.Put(stem + ".weight", "U8", codes.shape, ValuesOf<uint8_t>(codes));
    modelopt.Take(stem + ".weight_global_scale");
    modelopt.Put(stem + ".weight_scale_2", "F32", {}, std::vector<float>{1.0F / 1024});
    modelopt.Put(stem + ".input_scale", "F32", {}, std::vector<float>{1});
    if (absl::EndsWith(stem, "k_proj")) {
      modelopt.Put(stem + ".k_scale", "F32", {}, std::vector<float>{1});
    }
  });
  packed.Write(
      "nvfp4-pack-quantized",
      {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  modelopt.Write(json{{"quant_method", "modelopt"},
                      {"quant_algo", "NVFP4"},
                      {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}},
                      {"ignore", {"lm_head"}}});
  const std::vector<std::vector<int32_t>> prompts = ReadGolden(packed.from()).prompts;
  for (const int size : {1, 8}) {
    RigOptions options;
    options.size = size;
    ExpectSameBits(RunRig(modelopt.dir(), prompts, options),
                   RunRig(packed.dir(), prompts, options));
  }
}

// A whole number below 16 in E4M3.
uint8_t E4m3(int number) {
  if (number == 0) return 0;
  const int magnitude = std::abs(number);
  int exponent = 0;
  while (magnitude >> (exponent + 1) != 0) ++exponent;
  const int fraction = ((magnitude << 3) >> exponent) & 7;
  return static_cast<uint8_t>((number < 0 ? 0x80 : 0) | (exponent + 7) << 3 | fraction);
}

struct Fp8Case {
  const char* name;
  int64_t outputs;  // that share a scale; 0: all
  int64_t inputs;   // 0: all
};
class Fp8Formats : public testing::TestWithParam<Fp8Case> {
 protected:
  // Of each output and 128 inputs, from a block's first one.
  static std::vector<uint16_t> RepeatedScales(const Module& module) {
    std::vector<uint16_t> scales;
    for (int64_t row = 0; row < module.outputs; ++row) {
      for (int64_t col = 0; col < module.inputs; col += 128) scales.push_back(At(module, row, col));
    }
    return scales;
  }
  static uint16_t At(const Module& module, int64_t row, int64_t col) {
    const auto [name, outputs, inputs] = GetParam();
    const int64_t first = outputs == 0 ? 0 : row / outputs * outputs;
    const int64_t group = inputs == 0 ? 0 : col / inputs * inputs / 32;
    return module.scales[first * module.groups + group];
  }
  // As the file has them; in f32 where blocks have them.
  static void PutScales(Rewritten& checkpoint, const std::string& stem, const Module& module) {
    const auto [name, outputs, inputs] = GetParam();
    std::vector<uint16_t> scales;
    std::vector<uint32_t> as_f32;
    const int64_t rows = outputs == 0 ? 1 : module.outputs / outputs;
    const int64_t cols = inputs == 0 ? 1 : module.inputs / inputs;
    for (int64_t i = 0; i < rows * cols; ++i) {
      scales.push_back(At(module, i / cols * outputs, i % cols * inputs));
      as_f32.push_back(uint32_t{scales.back()} << 16);
    }
    if (inputs > 0) return checkpoint.Put(stem + ".weight_scale_inv", "F32", {rows, cols}, as_f32);
    const std::vector<int64_t> shape =
        outputs == 0 ? std::vector<int64_t>{1} : std::vector<int64_t>{rows, 1};
    checkpoint.Put(stem + ".weight_scale", "BF16", shape, scales);
    checkpoint.Put(stem + ".input_scale", "BF16", {1}, std::vector<uint16_t>{0x3f80});
  }
};

TEST_P(Fp8Formats, WholeNumbersInFp8AreThoseInEightBits) {
  Rewritten fp8("ct_int4_g32_asym");
  Rewritten int8("ct_int4_g32_asym");
  fp8.ForModules("weight_packed", [&](const std::string& stem) {
    const Module module(fp8, stem);
    const Module same(int8, stem);
    std::vector<uint8_t> codes;
    for (const int8_t code : module.codes) codes.push_back(E4m3(code));
    fp8.Put(stem + ".weight", "F8_E4M3", {module.outputs, module.inputs}, codes);
    PutScales(fp8, stem, module);
    int8.Put(stem + ".weight_packed", "I32", {module.outputs, module.inputs / 4}, module.Packed());
    int8.Put(stem + ".weight_scale", "BF16", {module.outputs, module.inputs / 128},
             RepeatedScales(module));
  });
  if (GetParam().inputs > 0) {
    fp8.Write({{"quant_method", "fp8"},
               {"fmt", "e4m3"},
               {"activation_scheme", "dynamic"},
               {"weight_block_size", {128, 128}},
               {"modules_to_not_convert", {"lm_head"}}});
  } else {
    fp8.Write(
        "float-quantized",
        {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", GetParam().name}});
  }
  int8.Write("pack-quantized", {{"num_bits", 8},
                                {"type", "int"},
                                {"symmetric", true},
                                {"strategy", "group"},
                                {"group_size", 128}});
  const std::vector<std::vector<int32_t>> prompts = ReadGolden(int8.from()).prompts;
  const RigResult want = RunRig(int8.dir(), prompts, {});
  for (const int size : {1, 4, 8}) {
    SCOPED_TRACE(size);
    RigOptions options;
    options.size = size;
    options.activation = size == 4 ? ActivationDType::kInt8 : ActivationDType::kF32;  // no matter
    options.backend = size == 8 ? "ordered" : "auto";
    ExpectSameBits(RunRig(fp8.dir(), prompts, options), want);
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Formats,
                         testing::Values(Fp8Case{"tensor", 0, 0}, Fp8Case{"channel", 1, 0},
                                         Fp8Case{"block", 128, 128}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace bulkhead
