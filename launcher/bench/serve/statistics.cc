#include "launcher/bench/serve/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "launcher/bench/quantile.h"

namespace bulkhead {
namespace {

constexpr uint64_t kSeed = 20;
constexpr int64_t kMostReplicates = 1000;
constexpr int64_t kLeastReplicates = 200;
constexpr int64_t kMostWork = 40'000'000;  // observations looked at by one bootstrap
constexpr double kBeyond = 10;             // observations that a percentile wants beyond itself

// The 95 % interval that `replicates` give around `value`.
Estimate IntervalOf(double value, std::vector<double> replicates) {
  std::sort(replicates.begin(), replicates.end());
  return {value, QuantileOfSorted(replicates, 0.025), QuantileOfSorted(replicates, 0.975)};
}

// How often each of `count` clusters was drawn.
std::vector<int> DrawWeights(int count, std::mt19937_64& random) {
  std::vector<int> weights(count, 0);
  std::uniform_int_distribution<int> draw(0, count - 1);
  for (int i = 0; i < count; ++i) ++weights[draw(random)];
  return weights;
}

// The percentiles (ascending) of sorted observations that count `weights[cluster]` times each.
std::vector<double> WeightedPercentiles(const std::vector<Observation>& sorted,
                                        const std::vector<int>& weights, int64_t total,
                                        const std::vector<double>& percents) {
  std::vector<double> values(percents.size(), 0);
  size_t next = 0;
  int64_t seen = 0;
  double last = 0;
  for (const Observation& one : sorted) {
    const int weight = weights[one.cluster];
    if (weight == 0) continue;
    while (next < percents.size()) {
      const double rank = percents[next] / 100 * static_cast<double>(total - 1);
      const auto below = static_cast<int64_t>(rank);
      if (std::min(below + 1, total - 1) >= seen + weight) break;  // a neighbour is yet to come
      const double share = rank - static_cast<double>(below);
      const double low = below < seen ? last : one.value;
      values[next++] = low + (one.value - low) * share;
    }
    if (next == percents.size()) break;
    seen += weight;
    last = one.value;
  }
  return values;
}

struct ClusterSums {
  std::vector<double> sum;
  std::vector<int64_t> count;
};

ClusterSums SumsOf(const std::vector<Observation>& observations) {
  ClusterSums sums;
  for (const Observation& one : observations) {
    if (one.cluster >= static_cast<int>(sums.sum.size())) {
      sums.sum.resize(one.cluster + 1, 0);
      sums.count.resize(one.cluster + 1, 0);
    }
    sums.sum[one.cluster] += one.value;
    ++sums.count[one.cluster];
  }
  return sums;
}

// Clusters numbered without gaps: one that holds nothing must not be drawn.
void NumberClusters(std::vector<Observation>* observations) {
  std::vector<int> number;
  int next = 0;
  for (Observation& one : *observations) {
    if (one.cluster >= static_cast<int>(number.size())) number.resize(one.cluster + 1, -1);
    if (number[one.cluster] < 0) number[one.cluster] = next++;
    one.cluster = number[one.cluster];
  }
}

}  // namespace

int64_t LeastCount(double percent) {
  const double beyond = std::min(percent, 100 - percent) / 100;
  if (beyond <= 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::ceil(kBeyond / beyond - 1e-6));
}

Distribution Describe(std::vector<Observation> observations, const std::vector<double>& percents) {
  Distribution result;
  result.count = static_cast<int64_t>(observations.size());
  for (const double percent : percents) result.percentiles.push_back({percent, std::nullopt});
  if (observations.empty()) return result;
  NumberClusters(&observations);
  std::sort(observations.begin(), observations.end(),
            [](const Observation& a, const Observation& b) { return a.value < b.value; });
  std::vector<double> sorted;
  for (const Observation& one : observations) sorted.push_back(one.value);
  result.min = sorted.front();
  result.max = sorted.back();
  const auto count = static_cast<double>(result.count);
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  double squares = 0;
  for (const double value : sorted) squares += (value - mean) * (value - mean);
  result.std_dev = std::sqrt(squares / count);

  std::vector<double> wanted = {50};
  wanted.insert(wanted.end(), percents.begin(), percents.end());
  std::sort(wanted.begin(), wanted.end());
  const ClusterSums sums = SumsOf(observations);
  const int clusters = static_cast<int>(sums.sum.size());
  const int64_t replicates =
      std::clamp(kMostWork / result.count, kLeastReplicates, kMostReplicates);
  std::mt19937_64 random(kSeed);
  std::vector<double> means;
  std::vector<std::vector<double>> drawn(wanted.size());
  for (int64_t i = 0; i < replicates; ++i) {
    const std::vector<int> weights = DrawWeights(clusters, random);
    double sum = 0;
    int64_t total = 0;
    for (int c = 0; c < clusters; ++c) {
      sum += weights[c] * sums.sum[c];
      total += weights[c] * sums.count[c];
    }
    means.push_back(sum / static_cast<double>(total));
    const std::vector<double> values = WeightedPercentiles(observations, weights, total, wanted);
    for (size_t k = 0; k < wanted.size(); ++k) drawn[k].push_back(values[k]);
  }
  const auto estimate = [&](double percent) {
    const size_t k = std::find(wanted.begin(), wanted.end(), percent) - wanted.begin();
    return IntervalOf(QuantileOfSorted(sorted, percent / 100), drawn[k]);
  };
  result.mean = IntervalOf(mean, means);
  result.median = estimate(50);
  for (Percentile& one : result.percentiles) {
    if (result.count >= LeastCount(one.percent)) one.estimate = estimate(one.percent);
  }
  return result;
}

Estimate MeanOf(const std::vector<double>& values) {
  std::vector<Observation> observations;
  for (size_t i = 0; i < values.size(); ++i) {
    observations.push_back({values[i], static_cast<int>(i)});
  }
  return Describe(std::move(observations), {}).mean;
}

double DifferenceInIntervals(const Estimate& a, const Estimate& b) {
  const double difference = b.value - a.value;
  if (difference == 0) return 0;
  const double half = std::hypot((a.high - a.low) / 2, (b.high - b.low) / 2);
  if (half > 0) return difference / half;
  return std::copysign(std::numeric_limits<double>::infinity(), difference);
}

}  // namespace bulkhead
