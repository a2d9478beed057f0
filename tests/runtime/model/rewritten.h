// Checkpoints of tests/data that are written again in another format.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/shard/checkpoint_files.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {

// A checkpoint that is rewritten module by module.
class Rewritten {
 public:
  // The checkpoint tests/data/FOLDER/FIXTURE.
  explicit Rewritten(const std::string& fixture, const std::string& folder = "quantised")
      : from_(std::string(BH_TEST_DATA) + "/" + folder + "/" + fixture),
        tensors_(ReadRawCheckpoint(from_)) {}

  const std::string& from() const { return from_; }
  const std::string& dir() const { return folder_.path(); }

  // Calls rewrite(stem of a module) for each with a tensor of this name.
  template <typename Rewrite>
  void ForModules(const std::string& part, const Rewrite& rewrite) {
    std::vector<std::string> stems;
    for (const auto& [name, tensor] : tensors_) {
      absl::string_view stem = name;
      if (absl::ConsumeSuffix(&stem, "." + part)) stems.emplace_back(stem);
    }
    ASSERT_FALSE(stems.empty());
    for (const std::string& stem : stems) rewrite(stem);
  }
  RawTensor Take(const std::string& name) {
    RawTensor tensor = tensors_.at(name);
    tensors_.erase(name);
    return tensor;
  }
  template <typename T>
  void Put(const std::string& name, const std::string& format, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    tensors_[name] = {
        name, format, std::move(shape),
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
  }
  void Write(const std::string& format, const nlohmann::json& weights) {
    Write({{"quant_method", "compressed-tensors"},
           {"format", format},
           {"ignore", {"lm_head"}},
           {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}});
  }
  void Write(const nlohmann::json& quantization) {
    nlohmann::json config = nlohmann::json::parse(ReadFile(from_ + "/config.json"));
    config["quantization_config"] = quantization;
    WriteFile(folder_.File("config.json"), config.dump());
    std::vector<RawTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(tensor);
    WriteFile(folder_.File("model.safetensors"), SafetensorsBytes(list));
  }

 private:
  const TemporaryFolder folder_;
  const std::string from_;
  std::map<std::string, RawTensor> tensors_;
};

template <typename T>
std::vector<T> ValuesOf(const RawTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// A matrix of codes of 4 or 8 bits, packed along its rows or columns.
struct Codes {
  int64_t rows;
  int64_t cols;
  std::vector<uint8_t> at;  // [rows, cols]

  Codes(int64_t r, int64_t c) : rows(r), cols(c), at(r * c) {}
  static Codes Unpack(const std::vector<uint32_t>& words, int64_t rows, int64_t cols,
                      bool along_cols) {
    Codes codes(rows, cols);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t word = along_cols ? row * (cols / 8) + col / 8 : row / 8 * cols + col;
        const int64_t digit = along_cols ? col % 8 : row % 8;
        codes.at[row * cols + col] = static_cast<uint8_t>(words[word] >> (4 * digit) & 0xF);
      }
    }
    return codes;
  }
  std::vector<uint32_t> Pack(bool along_cols) const {
    std::vector<uint32_t> words(rows * cols / 8);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t word = along_cols ? row * (cols / 8) + col / 8 : row / 8 * cols + col;
        const int64_t digit = along_cols ? col % 8 : row % 8;
        words[word] |= uint32_t{at[row * cols + col]} << (4 * digit);
      }
    }
    return words;
  }
};

template <typename T>
std::vector<T> Transposed(const std::vector<T>& values, int64_t rows, int64_t cols) {
  std::vector<T> out(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) out[col * rows + row] = values[row * cols + col];
  }
  return out;
}

inline void ExpectSameModel(const std::string& got, const std::string& want) {
  const std::vector<std::vector<int32_t>> prompts = ReadGolden(want).prompts;
  for (const int size : {1, 4}) {
    SCOPED_TRACE(size);
    RigOptions options;
    options.size = size;
    options.activation = size == 1 ? ActivationDType::kF32 : ActivationDType::kInt8;
    ExpectSameBits(RunRig(got, prompts, options), RunRig(want, prompts, options));
  }
}

}  // namespace bulkhead
