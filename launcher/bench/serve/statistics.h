// Percentiles, and how far they can be trusted. Pure: the same samples give the same intervals.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace bulkhead {

// A value and its 95 % interval.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

// One observation; those of one cluster (a request's tokens) are not independent of each other, so
// resampling draws whole clusters.
struct Observation {
  double value = 0;
  int cluster = 0;  // from 0
};

struct Percentile {
  double percent = 0;
  std::optional<Estimate> estimate;  // absent: there are too few observations for it
};

struct Distribution {
  int64_t count = 0;
  Estimate mean;
  Estimate median;
  double std_dev = 0;  // of the population, as numpy.std
  double min = 0;
  double max = 0;
  std::vector<Percentile> percentiles;
};

// The least number of observations that carries a percentile: ten beyond it.
int64_t LeastCount(double percent);

// Mean, median and percentiles with bootstrap intervals (percentile method, resampled by cluster);
// all zero of no observation.
Distribution Describe(std::vector<Observation> observations, const std::vector<double>& percents);

// The mean of `values` with its bootstrap interval; zero of none.
Estimate MeanOf(const std::vector<double>& values);

// Whether `b` differs from `a`, by the normal approximation of both intervals: the share of the
// difference's own 95 % interval half that the difference is (beyond 1 or -1: it does; 0 where both
// are equal).
double DifferenceInIntervals(const Estimate& a, const Estimate& b);

}  // namespace bulkhead
