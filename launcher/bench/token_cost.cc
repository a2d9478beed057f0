#include "launcher/bench/token_cost.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "launcher/bench/median.h"
#include "nlohmann/json.hpp"
#include "runtime/engine/sampler.h"
#include "runtime/tokenizer/text_stream.h"

namespace bulkhead {
namespace {

constexpr int kRows = 64;
constexpr int kTokens = 4096;
constexpr int kTokensPerReading = 64;  // a clock reading costs as much as a token

// Other load on the machine is not rank 0's cost.
double Now() { return 1e-9 * static_cast<double>(ThreadCpuNanos()); }

double SamplingSeconds(int vocab_size, float temperature) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) logit = normal(random);
  std::vector<double> scratch(Sampler::ScratchBytes(vocab_size) / sizeof(double) + 1);
  Sampler sampler(vocab_size, reinterpret_cast<std::byte*>(scratch.data()));
  SampleRow row;
  row.sampling.temperature = temperature;
  std::vector<double> seconds;
  for (int i = 0; i < kRows; ++i) {
    row.position = i;
    const double begin = Now();
    BH_CHECK(sampler.Sample(absl::MakeSpan(logits), row).ok());
    seconds.push_back(Now() - begin);
  }
  return Median(std::move(seconds));
}

double TextSeconds(const Tokenizer& tokenizer) {
  std::mt19937_64 random(2);
  TextStream stream(&tokenizer, {}, {});
  std::vector<double> seconds;
  for (int i = 0; i < kTokens; i += kTokensPerReading) {
    const double begin = Now();
    for (int j = 0; j < kTokensPerReading; ++j) {
      stream.Add(static_cast<int32_t>(random() % tokenizer.vocab_size()), /*may_stop=*/true);
    }
    seconds.push_back((Now() - begin) / kTokensPerReading);
  }
  return Median(std::move(seconds));
}

}  // namespace

TokenCost MeasureTokenCost(const Tokenizer& tokenizer) {
  TokenCost cost;
  cost.vocab_size = tokenizer.vocab_size();
  cost.greedy_s = SamplingSeconds(cost.vocab_size, 0);
  cost.sampled_s = SamplingSeconds(cost.vocab_size, 1);
  cost.text_s = TextSeconds(tokenizer);
  return cost;
}

std::unique_ptr<Tokenizer> MadeUpTokenizer(int vocab_size) {
  BH_CHECK(vocab_size >= 100);
  nlohmann::json vocabulary;
  for (int id = 0; id < vocab_size; ++id) {
    // Words first, and the letters that they are made of last.
    const int letter = id - (vocab_size - 26);
    vocabulary[letter >= 0 ? std::string(1, static_cast<char>('a' + letter))
                           : absl::StrCat("\u2581w", id)] = id;
  }
  const nlohmann::json file = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"decoder", {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}}}};
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(file.dump());
  BH_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

}  // namespace bulkhead
