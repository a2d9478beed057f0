#include "tests/support/golden.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace bulkhead {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  BH_CHECK(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Golden ReadGolden(const std::string& dir) {
  const nlohmann::json json = nlohmann::json::parse(ReadFile(dir + "/golden.json"));
  Golden golden;
  golden.prompts = json["prompts"].get<std::vector<std::vector<int32_t>>>();
  for (const auto& greedy : json["greedy_ignoring_eos"]) {
    golden.greedy_ids.push_back(greedy["ids"].get<std::vector<int32_t>>());
  }
  const std::string file = ReadFile(dir + "/golden.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const nlohmann::json& tensor = header[absl::StrCat("logits.", i)];
    BH_CHECK(tensor["dtype"] == "F32");
    golden.vocab_size = tensor["shape"][1].get<int64_t>();
    const size_t begin = tensor["data_offsets"][0].get<size_t>();
    const size_t end = tensor["data_offsets"][1].get<size_t>();
    std::vector<float> values((end - begin) / sizeof(float));
    BH_CHECK(values.size() == golden.prompts[i].size() * golden.vocab_size);
    std::memcpy(values.data(), file.data() + 8 + header_bytes + begin, end - begin);
    golden.logits.push_back(std::move(values));
  }
  return golden;
}

std::vector<int32_t> LongPrompt(const Golden& golden, size_t tokens) {
  std::vector<int32_t> prompt;
  while (prompt.size() < tokens) {
    for (const auto& part : golden.prompts) prompt.insert(prompt.end(), part.begin(), part.end());
  }
  prompt.resize(tokens);
  return prompt;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace bulkhead
