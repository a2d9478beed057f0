// What a quantised checkpoint may get wrong, and its rows against a plain reading of its tensors.
#include "shard/quantized_tensors.h"

#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/model/family.h"
#include "shard/weight_loader.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

std::string FixtureDir(const std::string& name) {
  return std::string(BH_TEST_DATA) + "/quantised/" + name;
}

int32_t WordAt(const RawTensor& tensor, int64_t index) {
  int32_t word;
  std::memcpy(&word, tensor.bytes.data() + 4 * index, 4);
  return word;
}
uint32_t Nibble(int32_t word, int64_t i) { return (static_cast<uint32_t>(word) >> (4 * i)) & 0xF; }

// The checkpoint of these tensors, as one file.
void Write(const TemporaryFolder& folder, const std::map<std::string, RawTensor>& tensors) {
  std::vector<RawTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back(tensor);
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(list));
}

constexpr char kFirstQ[] = "model.layers.0.self_attn.q_proj.weight";

class QuantizedTensorsTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string dir_ = FixtureDir(GetParam());
  const ParsedConfig config_ = *ReadModelConfig(dir_, UnknownFields::kWarn, AllFamilySpecs());
  const TensorIndex index_ = *TensorIndex::Open(dir_);
  std::map<std::string, RawTensor> raw_ = ReadRawCheckpoint(dir_);
};

TEST_P(QuantizedTensorsTest, AnyPartIsThatPartOfAPlainReading) {
  const std::string stem = "model.layers.0.mlp.down_proj.";
  const auto tensors = FindQuantized(
      index_, RowOf(config_.model, "model.layers.0.mlp.down_proj.weight"), config_.model);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  if (tensors->is_by_output()) return;  // the test below
  const RawTensor& qweight = raw_.at(stem + "qweight");
  const RawTensor& qzeros = raw_.at(stem + "qzeros");
  const int64_t outputs = tensors->outputs;
  const int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // where output 8w + i lies in its word
  for (const auto& [rows, cols] :
       {std::pair{Range{0, outputs}, Range{0, 320}}, std::pair{Range{3, 21}, Range{37, 101}},
        std::pair{Range{120, 128}, Range{0, 32}}, std::pair{Range{7, 8}, Range{319, 320}}}) {
    std::vector<std::byte> staging(tensors->StagingBytes(cols, rows.size()));
    const auto read = tensors->ReadRows(rows, cols, staging.data());
    ASSERT_TRUE(read.ok()) << read.status();
    const Range groups = tensors->GroupsOf(cols);
    for (int64_t o = rows.begin; o < rows.end; ++o) {
      for (int64_t i = cols.begin; i < cols.end; ++i) {
        const uint32_t want =
            tensors->is_awq() ? Nibble(WordAt(qweight, i * (outputs / 8) + o / 8), awq_place[o % 8])
                              : Nibble(WordAt(qweight, i / 8 * outputs + o), i % 8);
        ASSERT_EQ(read->codes[(o - rows.begin) * cols.size() + i - cols.begin], want);
      }
      for (int64_t g = groups.begin; g < groups.end; ++g) {
        const int64_t place = tensors->is_awq() ? awq_place[o % 8] : o % 8;
        const uint32_t want = Nibble(WordAt(qzeros, g * (outputs / 8) + o / 8), place);
        ASSERT_EQ(read->zeros[(o - rows.begin) * groups.size() + g - groups.begin],
                  want + (tensors->is_awq() ? 0 : 1));
      }
    }
  }
}

TEST_P(QuantizedTensorsTest, AnyPartByOutputIsThatPartOfAPlainReading) {
  const std::string stem = "model.layers.0.mlp.down_proj.weight";
  const auto tensors = FindQuantized(index_, RowOf(config_.model, stem), config_.model);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  if (!tensors->is_by_output()) return;
  const bool has_zeros = tensors->zeros.entry != nullptr;
  const int64_t inputs = tensors->inputs, group_size = config_.model.quantization.group_size;
  const int64_t of_row = inputs / group_size;
  const RawTensor& codes = raw_.at(stem + "_packed");
  const RawTensor& scales = raw_.at(stem + "_scale");
  for (const auto& [rows, cols] :
       {std::pair{Range{0, 256}, Range{0, inputs}}, std::pair{Range{3, 21}, Range{37, 101}},
        std::pair{Range{120, 128}, Range{0, 33}},
        std::pair{Range{7, 8}, Range{inputs - 1, inputs}}}) {
    std::vector<std::byte> staging(tensors->StagingBytes(cols, rows.size()));
    const auto read = tensors->ReadRows(rows, cols, staging.data());
    ASSERT_TRUE(read.ok()) << read.status();
    const Range groups = tensors->GroupsOf(cols);
    EXPECT_EQ(groups.end, (cols.end + group_size - 1) / group_size);
    for (int64_t o = rows.begin; o < rows.end; ++o) {
      for (int64_t i = cols.begin; i < cols.end; ++i) {
        ASSERT_EQ(read->codes[(o - rows.begin) * cols.size() + i - cols.begin],
                  Nibble(WordAt(codes, o * (inputs / 8) + i / 8), i % 8));
      }
      for (int64_t g = groups.begin; g < groups.end; ++g) {
        const int64_t at = (o - rows.begin) * groups.size() + g - groups.begin;
        uint16_t scale = static_cast<uint8_t>(scales.bytes[o * of_row + g]);
        if (has_zeros) std::memcpy(&scale, scales.bytes.data() + (o * of_row + g) * 2, 2);
        ASSERT_EQ(read->scales[at], scale);
        if (!has_zeros) continue;
        const RawTensor& zeros = raw_.at(stem + "_zero_point");
        ASSERT_EQ(read->zeros[at], Nibble(WordAt(zeros, o / 8 * of_row + g), o % 8));
      }
      if (!raw_.contains(stem + "_global_scale")) continue;
      float global;
      std::memcpy(&global, raw_.at(stem + "_global_scale").bytes.data(), sizeof(global));
      ASSERT_EQ(read->factors[o - rows.begin], 1 / global);
    }
  }
}

TEST_P(QuantizedTensorsTest, AShapeTensorThatDisagreesIsRefused) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight_shape";
  if (!raw_.contains(name)) return;
  raw_.at(name).bytes[0] ^= 1;
  const TemporaryFolder dir;
  Write(dir, raw_);
  const absl::Status status = (*Checkpoint::Open(dir.path()))->CheckAgainst(config_.model);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

TEST_P(QuantizedTensorsTest, EveryTensorMustBeThereWithItsShapeAndFormat) {
  for (const std::string& part : QuantizedNamesOf(RowOf(config_.model, kFirstQ), config_.model)) {
    if (absl::StrContains(part, "input_global_scale")) continue;  // is not there, and not needed
    SCOPED_TRACE(part);
    const TemporaryFolder dir;
    std::map<std::string, RawTensor> tensors = raw_;
    tensors.erase(part);
    const bool optional =
        absl::StrContains(part, "weight_shape") ||
        (absl::StrContains(part, "g_idx") && !config_.model.quantization.act_order);
    Write(dir, tensors);
    absl::Status status = (*Checkpoint::Open(dir.path()))->CheckAgainst(config_.model);
    EXPECT_EQ(status.ok(), optional) << status;
    if (!optional) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    for (const bool format : {true, false}) {
      const TemporaryFolder other;
      tensors = raw_;
      RawTensor& tensor = tensors.at(part);
      if (format) {
        const std::map<std::string, std::string> as_wide = {
            {"I32", "F32"}, {"F16", "BF16"}, {"BF16", "F16"},  {"U8", "I8"},
            {"I64", "F64"}, {"F32", "I32"},  {"F8_E4M3", "U8"}};
        tensor.format = as_wide.at(tensor.format);
      } else {
        tensor.shape.insert(tensor.shape.begin(), 1);
      }
      Write(other, tensors);
      status = (*Checkpoint::Open(other.path()))->CheckAgainst(config_.model);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST_P(QuantizedTensorsTest, SizesThatGroupsDoNotDivideAreRefused) {
  ModelConfig config = config_.model;
  config.quantization.group_size = 256;  // intermediate_size is 320 or 384
  const auto found =
      FindQuantized(index_, RowOf(config, "model.layers.0.mlp.down_proj.weight"), config);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, QuantizedTensorsTest,
                         testing::Values("awq", "gptq", "gptq_act_order", "ct_int4_g32_asym",
                                         "ct_mxfp4", "ct_nvfp4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Nvfp4TensorsTest, FactorsAndScalesThatAreNoNumbersAreRefused) {
  const std::string dir = FixtureDir("ct_nvfp4");
  const ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  for (const float bad : {0.0F, -1.0F, NAN, INFINITY, 1e-40F, 3e38F}) {
    const TemporaryFolder folder;
    std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
    std::memcpy(tensors.at(std::string(kFirstQ) + "_global_scale").bytes.data(), &bad, sizeof(bad));
    Write(folder, tensors);
    const absl::Status status = (*Checkpoint::Open(folder.path()))->CheckAgainst(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bad << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("q_proj.weight_global_scale"));
  }
  const TemporaryFolder folder;
  std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
  tensors.at(std::string(kFirstQ) + "_scale").bytes[16 * 3 + 5] = '\xff';
  Write(folder, tensors);
  const TensorIndex index = *TensorIndex::Open(folder.path());
  const auto found = FindQuantized(index, RowOf(config, kFirstQ), config);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::byte> staging(found->StagingBytes({0, 256}, 4));
  EXPECT_TRUE(found->ReadRows({0, 3}, {0, 256}, staging.data()).ok());
  EXPECT_TRUE(found->ReadRows({3, 4}, {0, 80}, staging.data()).ok());
  const auto read = found->ReadRows({3, 4}, {80, 96}, staging.data());
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
}

TEST(Mxfp4TensorsTest, AScaleBeyondF32OrThatIsNoNumberIsRefused) {
  const std::string experts = "model.layers.0.mlp.experts.down_proj";
  for (const auto& [fixture, weight, scales, scale, ok] :
       {std::tuple{"ct_mxfp4", std::string(kFirstQ), std::string(kFirstQ) + "_scale", '\xff',
                   false},
        {"ct_mxfp4", kFirstQ, std::string(kFirstQ) + "_scale", '\xfd', false},
        {"ct_mxfp4", kFirstQ, std::string(kFirstQ) + "_scale", '\xfc', true},
        {"gpt_oss_mxfp4", experts, experts + "_scales", '\xff', false}}) {
    const std::string dir = FixtureDir(fixture);
    const ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
    std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
    RawTensor& tensor = tensors.at(scales);
    tensor.bytes[3 * tensor.shape.back() + 1] = scale;  // of row 3, inputs 32 to 63
    const TemporaryFolder folder;
    Write(folder, tensors);
    const TensorIndex index = *TensorIndex::Open(folder.path());
    const auto found = FindQuantized(index, RowOf(config, weight), config);
    ASSERT_TRUE(found.ok()) << found.status();
    std::vector<std::byte> staging(found->StagingBytes({0, 64}, 4));
    EXPECT_TRUE(found->ReadRows({0, 3}, {0, 64}, staging.data()).ok());
    EXPECT_TRUE(found->ReadRows({3, 4}, {0, 32}, staging.data()).ok());
    const auto read = found->ReadRows({3, 4}, {32, 64}, staging.data());
    EXPECT_EQ(read.status().code(), ok ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
  }
}

TEST(Fp8TensorsTest, AScaleOf256AndMoreIsRefused) {
  const std::string dir = FixtureDir("gptq");
  ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  config.quantization = {};
  config.quantization.method = QuantizationConfig::Method::kFp8;
  config.quantization.bits = 8;
  config.quantization.group_size = config.quantization.group_outputs = 128;
  const TensorRow row = RowOf(config, kFirstQ);
  const int64_t outputs = row.FileSize();
  for (const float scale : {255.9F, -255.9F, 256.0F, -256.0F, INFINITY, NAN}) {
    std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
    const std::string codes(outputs * row.cols, '\x38');
    tensors[kFirstQ] = {kFirstQ, "F8_E4M3", {outputs, row.cols}, codes};
    const std::string scales = std::string(kFirstQ) + "_scale_inv";
    const std::vector<int64_t> shape = {(outputs + 127) / 128, (row.cols + 127) / 128};
    std::string bytes(shape[0] * shape[1] * sizeof(float), '\0');
    std::memcpy(bytes.data(), &scale, sizeof(scale));
    tensors[scales] = {scales, "F32", shape, bytes};
    const TemporaryFolder folder;
    Write(folder, tensors);
    const TensorIndex index = *TensorIndex::Open(folder.path());
    const auto found = FindQuantized(index, row, config);
    ASSERT_TRUE(found.ok()) << found.status();
    std::vector<std::byte> staging(found->StagingBytes({0, row.cols}, 4));
    const absl::Status read = found->ReadRows({0, 4}, {0, row.cols}, staging.data()).status();
    EXPECT_EQ(read.ok(), std::abs(scale) < 256) << scale;
    if (read.ok()) continue;
    EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
    EXPECT_THAT(std::string(read.message()), HasSubstr("must be below 256"));
  }
}

TEST(GptqTensorsTest, EightBitsAreBytesAndEveryZeroIs128) {
  // Of the shapes of 8 bits: the codes of two outputs in place of one's.
  const std::string dir = FixtureDir("gptq");
  ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  config.quantization.bits = 8;
  const std::string stem = "model.layers.0.self_attn.q_proj.";
  std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
  RawTensor& qweight = tensors.at(stem + "qweight");
  RawTensor& qzeros = tensors.at(stem + "qzeros");
  qweight.shape[0] *= 2;
  qweight.bytes += qweight.bytes;
  qzeros.shape[1] *= 2;
  qzeros.bytes = std::string(2 * qzeros.bytes.size(), '\x7f');
  const int64_t outputs = qweight.shape[1];
  qzeros.bytes[outputs + 5] = '\x80';  // of group 1
  const TemporaryFolder folder;
  Write(folder, tensors);
  const TensorIndex index = *TensorIndex::Open(folder.path());
  const auto found = FindQuantized(index, RowOf(config, kFirstQ), config);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::byte> staging(found->StagingBytes({0, 128}, outputs));
  EXPECT_TRUE(found->ReadRows({0, outputs}, {0, 32}, staging.data()).ok());
  EXPECT_TRUE(found->ReadRows({6, outputs}, {32, 64}, staging.data()).ok());
  const auto part = found->ReadRows({3, 5}, {38, 59}, staging.data());
  ASSERT_TRUE(part.ok()) << part.status();
  for (int64_t o = 3; o < 5; ++o) {
    for (int64_t i = 38; i < 59; ++i) {
      const auto word = static_cast<uint32_t>(WordAt(qweight, i / 4 * outputs + o));
      EXPECT_EQ(part->codes[(o - 3) * 21 + i - 38], word >> (8 * (i % 4)) & 0xFF);
    }
  }
  const auto read = found->ReadRows({3, 7}, {32, 64}, staging.data());
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("output 5 and group 1 is 129"));
}

TEST(GptqTensorsTest, InputsOfOneGroupMustBeWholeWords) {
  const std::string dir = FixtureDir("gptq");
  ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  config.quantization.group_size = 0;
  TensorRow row = RowOf(config, "model.layers.0.mlp.down_proj.weight");
  const TensorIndex index = *TensorIndex::Open(dir);
  for (const int bits : {4, 8}) {
    config.quantization.bits = bits;
    row.cols = 8 * 39 + 2;
    const absl::Status refused = FindQuantized(index, row, config).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("314], which words of ", 32 / bits, " inputs and words of ",
                                       32 / bits, " outputs do not divide")));
  }
}

TEST(GptqTensorsTest, OneGroupOfAllInputsIsThatOfEveryGroupHeld) {
  const std::string dir = FixtureDir("gptq");
  ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  config.quantization.group_size = 0;
  const std::string stem = "model.layers.0.mlp.down_proj.";
  std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
  for (const char* name : {"qzeros", "scales"}) {
    RawTensor& tensor = tensors.at(stem + name);
    tensor.bytes.resize(tensor.bytes.size() / tensor.shape[0]);
    tensor.shape[0] = 1;
  }
  std::string& index_bytes = tensors.at(stem + "g_idx").bytes;
  index_bytes.assign(index_bytes.size(), '\0');
  const TemporaryFolder folder;
  Write(folder, tensors);
  const TensorIndex index = *TensorIndex::Open(folder.path());
  const auto found = FindQuantized(index, RowOf(config, stem + "weight"), config);
  ASSERT_TRUE(found.ok()) << found.status();
  const Range cols{100, found->inputs};
  EXPECT_TRUE(found->ReadGroupIndex(cols).ok());
  const int64_t groups = found->GroupsOf(cols).size();
  ASSERT_EQ(groups, 3);  // of 128 of 320 inputs, as they are held
  std::vector<std::byte> staging(found->StagingBytes(cols, 5));
  const auto read = found->ReadRows({3, 8}, cols, staging.data());
  ASSERT_TRUE(read.ok()) << read.status();
  for (int64_t o = 3; o < 8; ++o) {
    uint16_t scale;
    std::memcpy(&scale, tensors.at(stem + "scales").bytes.data() + o * 2, sizeof(scale));
    const uint32_t zero = Nibble(WordAt(tensors.at(stem + "qzeros"), 0), o) + 1;
    for (int64_t group = 0; group < groups; ++group) {
      EXPECT_EQ(read->scales[(o - 3) * groups + group], scale);
      EXPECT_EQ(read->zeros[(o - 3) * groups + group], zero);
    }
  }
}

class GroupIndexTest : public testing::Test {
 protected:
  // What comes of a checkpoint whose first g_idx has `value` at input 5.
  static absl::Status With(const std::string& fixture, int32_t value) {
    const TemporaryFolder dir;
    std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(FixtureDir(fixture));
    const std::string name = "model.layers.0.self_attn.q_proj.g_idx";
    std::memcpy(tensors.at(name).bytes.data() + 5 * 4, &value, 4);
    Write(dir, tensors);
    const ParsedConfig config =
        *ReadModelConfig(FixtureDir(fixture), UnknownFields::kWarn, AllFamilySpecs());
    const TensorIndex index = *TensorIndex::Open(dir.path());
    return FindQuantized(index, RowOf(config.model, kFirstQ), config.model)
        ->ReadGroupIndex({0, 128})
        .status();
  }
};

TEST_F(GroupIndexTest, OutOfRangeAndOutOfOrderAreDataLoss) {
  for (const int32_t value : {-1, 4, 1 << 30}) {
    const absl::Status status = With("gptq_act_order", value);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << value;
    EXPECT_THAT(std::string(status.message()), HasSubstr("input 5"));
  }
  EXPECT_TRUE(With("gptq_act_order", 3).ok());
  EXPECT_THAT(std::string(With("gptq", 1).message()), HasSubstr("desc_act is false"));
  EXPECT_TRUE(With("gptq", 0).ok());
}

}  // namespace
}  // namespace bulkhead
