// Rows of logits that a device samples, and the host's tokens of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "runtime/engine/sampler.h"

namespace bulkhead {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int kSlots = 64;

// Rows of logits and how each is sampled.
struct Rows {
  explicit Rows(int64_t vocab_size) : vocab(vocab_size) {}
  void Add(std::vector<float> row, SampleRow sample) {
    ASSERT_EQ(static_cast<int64_t>(row.size()), vocab);
    sample.position = 1000 + size();
    sample.sampling.seed = 77;
    logits.insert(logits.end(), row.begin(), row.end());
    samples.push_back(std::move(sample));
  }
  int size() const { return static_cast<int>(samples.size()); }

  int64_t vocab;
  std::vector<float> logits;
  std::vector<SampleRow> samples;
};

inline SampleRow Sample(float temperature, int top_k, float top_p = 1, float min_p = 0) {
  SampleRow row;
  row.sampling = {.temperature = temperature, .top_p = top_p, .top_k = top_k, .min_p = min_p};
  return row;
}

// kNotFinite and kNothingToSample for rows without a token.
inline std::vector<int32_t> SampledByHost(const Rows& rows) {
  std::vector<std::byte> scratch(Sampler::ScratchBytes(rows.vocab));
  Sampler sampler(rows.vocab, scratch.data());
  std::vector<int32_t> sampled;
  for (int i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows.samples[i];
    const auto begin = rows.logits.begin() + i * rows.vocab;
    std::vector<float> logits(begin, begin + rows.vocab);
    const auto token = sampler.Sample(absl::MakeSpan(logits), row);
    sampled.push_back(token.ok()                              ? token->id
                      : token.status() == NotFiniteError(row) ? kNotFinite
                                                              : kNothingToSample);
  }
  return sampled;
}

// In steps of 1/8, so that there are ties.
inline std::vector<float> RandomRow(int64_t vocab, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(vocab);
  for (float& logit : row) logit = std::round(normal(random) * 8) / 8;
  return row;
}

}  // namespace bulkhead
