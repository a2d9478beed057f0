// Latent attention from codes: a checkpoint that is quantised is the model of the numbers that its
// codes mean, but for the order of sums, as the MLP's columns are cut at groups. All numbers are in
// bf16, as heads' parts of kv_b_proj are held.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/runtime/model/rewritten.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

using nlohmann::json;

float NumberOf(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}
uint16_t Bf16Of(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  EXPECT_EQ(bits & 0xFFFF, 0U) << number;  // nothing is rounded here
  return static_cast<uint16_t>(bits >> 16);
}

float E4m3(int code) {
  const int exponent = code >> 3 & 15;
  const float fraction = static_cast<float>(code & 7) / 8;
  const float number =
      exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return code >= 128 ? -number : number;
}
float E2m1(int code) {
  constexpr float kNumbers[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  return code >= 8 ? -kNumbers[code - 8] : kNumbers[code];
}

struct Matrix {
  int64_t rows, cols;
  std::vector<float> at;
};

// The code whose number is the closest.
uint8_t Nearest(float number, int codes, const std::function<float(int)>& meaning) {
  int best = 0;
  for (int code = 1; code < codes; ++code) {
    const float error = std::fabs(meaning(code) - number);
    if (error < std::fabs(meaning(best) - number)) best = code;  // never for NaN
  }
  return static_cast<uint8_t>(best);
}

std::vector<uint8_t> Halved(const std::vector<uint8_t>& nibbles) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < nibbles.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(nibbles[i] | nibbles[i + 1] << 4));
  }
  return bytes;
}

// Each puts a module's codes, and makes `matrix` the numbers that they mean.
void PutFp8(Rewritten& checkpoint, const std::string& stem, Matrix& matrix) {
  const int64_t of_row = (matrix.cols + 127) / 128;
  const int64_t blocks = (matrix.rows + 127) / 128 * of_row;
  std::vector<float> scales;
  for (int64_t i = 0; i < blocks; ++i) {
    scales.push_back(std::ldexp(1.0F, -9 - static_cast<int>(i % 3)));
  }
  std::array<float, 256> numbers;
  for (int code = 0; code < 256; ++code) numbers[code] = (code & 127) == 127 ? NAN : E4m3(code);
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    const float scale = scales[i / matrix.cols / 128 * of_row + i % matrix.cols / 128];
    codes.push_back(Nearest(matrix.at[i] / scale, 256, [&](int code) { return numbers[code]; }));
    matrix.at[i] = numbers[codes.back()] * scale;
  }
  checkpoint.Put(stem + ".weight", "F8_E4M3", {matrix.rows, matrix.cols}, codes);
  checkpoint.Put(stem + ".weight_scale_inv", "F32", {blocks / of_row, of_row}, scales);
}

void PutNvfp4(Rewritten& checkpoint, const std::string& stem, Matrix& matrix) {
  constexpr float kGlobal = 4096;
  std::vector<uint8_t> codes, scales;
  for (int64_t begin = 0; begin < matrix.rows * matrix.cols; begin += 16) {
    float max = 0;
    for (int64_t i = begin; i < begin + 16; ++i) max = std::max(max, std::fabs(matrix.at[i]));
    scales.push_back(Nearest(max / 6 * kGlobal, 127, E4m3));
    const float scale = E4m3(scales.back()) / kGlobal;
    for (int64_t i = begin; i < begin + 16; ++i) {
      codes.push_back(Nearest(matrix.at[i], 16, [&](int code) { return E2m1(code) * scale; }));
      matrix.at[i] = E2m1(codes.back()) * scale;
    }
  }
  checkpoint.Put(stem + ".weight_packed", "U8", {matrix.rows, matrix.cols / 2}, Halved(codes));
  checkpoint.Put(stem + ".weight_scale", "F8_E4M3", {matrix.rows, matrix.cols / 16}, scales);
  checkpoint.Put(stem + ".weight_global_scale", "F32", {1}, std::vector<float>{kGlobal});
}

void PutInt4(Rewritten& checkpoint, const std::string& stem, Matrix& matrix) {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  for (int64_t begin = 0; begin < matrix.rows * matrix.cols; begin += 32) {
    const float scale = std::ldexp(begin % 64 == 0 ? 1.0F : 1.5F, -8);
    scales.push_back(Bf16Of(scale));
    for (int64_t i = begin; i < begin + 32; ++i) {
      const auto number = [&](int code) { return static_cast<float>(code - 8) * scale; };
      codes.push_back(Nearest(matrix.at[i], 16, number));
      matrix.at[i] = number(codes.back());
    }
  }
  const std::vector<uint8_t> bytes = Halved(codes);
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  checkpoint.Put(stem + ".weight_packed", "I32", {matrix.rows, matrix.cols / 8}, words);
  checkpoint.Put(stem + ".weight_scale", "BF16", {matrix.rows, matrix.cols / 32}, scales);
}

struct Format {
  const char* name;
  int group;  // inputs that a module must have whole groups of
  void (*put)(Rewritten& checkpoint, const std::string& stem, Matrix& matrix);
};

class LatentFormats : public testing::TestWithParam<Format> {
 protected:
  // The modules of the layers' products; what groups do not divide stays in numbers.
  void Rewrite() {
    codes_.ForModules("weight", [&](const std::string& stem) {
      if (!absl::EndsWith(stem, "_proj") && !absl::EndsWith(stem, "_with_mqa")) return;
      const RawTensor tensor = numbers_.Take(stem + ".weight");
      const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
      if (cols % GetParam().group != 0) {
        kept_.push_back(stem);
        return numbers_.Put(stem + ".weight", "BF16", {rows, cols}, ValuesOf<uint16_t>(tensor));
      }
      in_codes_ += absl::EndsWith(stem, "kv_b_proj") ? 1 : 0;
      codes_.Take(stem + ".weight");
      Matrix matrix{rows, cols, {}};
      for (const uint16_t bf16 : ValuesOf<uint16_t>(tensor)) matrix.at.push_back(NumberOf(bf16));
      GetParam().put(codes_, stem, matrix);
      std::vector<uint16_t> bf16;
      for (const float number : matrix.at) bf16.push_back(Bf16Of(number + 0.0F));
      numbers_.Put(stem + ".weight", "BF16", {rows, cols}, bf16);
    });
    EXPECT_EQ(in_codes_, 3);  // layers
    numbers_.Write(json(nullptr));
  }
  void WritePacked(const std::string& format, const json& weights) {
    kept_.emplace_back("lm_head");
    codes_.Write(
        json{{"quant_method", "compressed-tensors"},
             {"format", format},
             {"ignore", kept_},
             {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}});
  }

  Rewritten codes_{"deepseek_v3_bf16", "models"};
  Rewritten numbers_{"deepseek_v3_bf16", "models"};
  std::vector<std::string> kept_;
  int in_codes_ = 0;
};

TEST_P(LatentFormats, CodesAreTheModelOfTheirNumbers) {
  Rewrite();
  if (GetParam().name == std::string("fp8")) {
    codes_.Write(json{{"quant_method", "fp8"},
                      {"fmt", "e4m3"},
                      {"activation_scheme", "dynamic"},
                      {"weight_block_size", {128, 128}}});
  } else if (GetParam().name == std::string("nvfp4")) {
    WritePacked(
        "nvfp4-pack-quantized",
        {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  } else {
    WritePacked("pack-quantized",
                {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}});
  }
  const Golden golden = ReadGolden(codes_.from());
  RigOptions options;
  options.decode_tokens = 4;
  const RigResult one = RunRig(codes_.dir(), golden.prompts, options);
  const RigResult want = RunRig(numbers_.dir(), golden.prompts, options);
  for (const int size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(size);
    options.size = size;
    const RigResult got = RunRig(codes_.dir(), golden.prompts, options);
    for (size_t i = 0; i < golden.prompts.size(); ++i) {
      EXPECT_LE(RelativeError(got.logits[i], want.logits[i]), 2e-6) << "prompt " << i;
    }
    if (size != 3) ExpectSameBits(got, one);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LatentFormats,
                         testing::Values(Format{"fp8", 1, PutFp8}, Format{"nvfp4", 16, PutNvfp4},
                                         Format{"int4", 32, PutInt4}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace bulkhead
