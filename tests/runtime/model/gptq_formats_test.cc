// GPTQ with 8 bits, and in its second format, against its golden model with 4 bits.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/model/rewritten.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr int kStep = 8;  // of the codes with 8 bits: they are up to 248

json GptqConfig(int bits, bool act_order, bool symmetric, const char* format) {
  return {{"quant_method", "gptq"}, {"bits", bits},     {"group_size", 32},
          {"desc_act", act_order},  {"sym", symmetric}, {"checkpoint_format", format}};
}

// Bytes [rows, cols] as words of four along their rows or columns.
std::vector<uint32_t> PackBytes(const std::vector<uint8_t>& bytes, int64_t rows, int64_t cols,
                                bool along_cols) {
  std::vector<uint32_t> words(rows * cols / 4);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t word = along_cols ? row * (cols / 4) + col / 4 : row / 4 * cols + col;
      const int64_t digit = along_cols ? col % 4 : row % 4;
      words[word] |= uint32_t{bytes[row * cols + col]} << (8 * digit);
    }
  }
  return words;
}

// The same weights: codes less their zeros times kStep, scales by it; f16 holds them, as they are
// no subnormal numbers.
void WriteInEightBits(Rewritten& checkpoint, const std::string& stem, int stored_zero) {
  const RawTensor qweight = checkpoint.Take(stem + ".qweight");
  const int64_t inputs = qweight.shape[0] * 8, outputs = qweight.shape[1];
  Codes codes = Codes::Unpack(ValuesOf<uint32_t>(qweight), inputs, outputs, false);
  const RawTensor scale = checkpoint.Take(stem + ".scales");
  const int64_t groups = scale.shape[0];
  const Codes zeros =
      Codes::Unpack(ValuesOf<uint32_t>(checkpoint.Take(stem + ".qzeros")), groups, outputs, true);
  const RawTensor index = checkpoint.Take(stem + ".g_idx");
  const std::vector<int32_t> group_of = ValuesOf<int32_t>(index);
  checkpoint.Put(stem + ".g_idx", "I32", {inputs}, group_of);
  for (int64_t input = 0; input < inputs; ++input) {
    for (int64_t output = 0; output < outputs; ++output) {
      uint8_t& code = codes.at[input * outputs + output];
      const int zero = zeros.at[group_of[input] * outputs + output] + 1;
      code = static_cast<uint8_t>((code - zero) * kStep + 128);
    }
  }
  checkpoint.Put(stem + ".qweight", "I32", {inputs / 4, outputs},
                 PackBytes(codes.at, inputs, outputs, false));
  checkpoint.Put(
      stem + ".qzeros", "I32", {groups, outputs / 4},
      PackBytes(std::vector<uint8_t>(groups * outputs, static_cast<uint8_t>(stored_zero)), groups,
                outputs, true));
  std::vector<uint16_t> scales = ValuesOf<uint16_t>(scale);
  for (uint16_t& bits : scales) {
    ASSERT_GE(bits, 4 << 10);  // an exponent that three less does not make subnormal
    bits = static_cast<uint16_t>(bits - (3 << 10));
  }
  checkpoint.Put(stem + ".scales", "F16", {groups, outputs}, scales);
}

TEST(GptqFormats, EightBitsAreTheModelOfFour) {
  for (const bool act_order : {false, true}) {
    for (const bool v2 : {false, true}) {
      SCOPED_TRACE(testing::Message() << "act order " << act_order << ", v2 " << v2);
      Rewritten checkpoint(act_order ? "gptq_act_order" : "gptq");
      checkpoint.ForModules("qweight", [&](const std::string& stem) {
        WriteInEightBits(checkpoint, stem, v2 ? 128 : 127);
      });
      checkpoint.Write(GptqConfig(8, act_order, true, v2 ? "gptq_v2" : "gptq"));
      ExpectSameModel(checkpoint.dir(), checkpoint.from());
      const Golden golden = ReadGolden(checkpoint.from());
      for (const int size : {3, 8}) {
        RigOptions options;
        options.size = size;
        const RigResult result = RunRig(checkpoint.dir(), golden.prompts, options);
        for (size_t i = 0; i < golden.prompts.size(); ++i) {
          EXPECT_LE(RelativeError(result.logits[i], golden.logits[i]), 1e-4) << size;
        }
      }
    }
  }
}

TEST(GptqFormats, TheSecondFormatHasZerosAsTheyAre) {
  Rewritten checkpoint("gptq_act_order");
  checkpoint.ForModules("qzeros", [&](const std::string& stem) {
    const RawTensor qzeros = checkpoint.Take(stem + ".qzeros");
    const int64_t groups = qzeros.shape[0], outputs = qzeros.shape[1] * 8;
    Codes zeros = Codes::Unpack(ValuesOf<uint32_t>(qzeros), groups, outputs, true);
    for (uint8_t& zero : zeros.at) {
      ASSERT_LT(zero, 15);
      ++zero;
    }
    checkpoint.Put(stem + ".qzeros", "I32", qzeros.shape, zeros.Pack(true));
  });
  checkpoint.Write(GptqConfig(4, true, false, "gptq_v2"));
  ExpectSameModel(checkpoint.dir(), checkpoint.from());
}

}  // namespace
}  // namespace bulkhead
