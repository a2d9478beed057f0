// FamilyList: metric families of prometheus-cpp, built for one scrape.
//
// The values live in engine and service, counted there under their own locks and read at one time;
// prometheus::Registry would hold a second copy of each behind a mutex of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "runtime/engine/fixed_histogram.h"

namespace bulkhead {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class FamilyList {
 public:
  // Labels of every metric of the families that follow.
  void SetCommonLabels(MetricLabels labels) { common_ = std::move(labels); }

  // The next family. Counters end in _total.
  FamilyList& Gauge(const std::string& name, const std::string& help);
  FamilyList& Counter(const std::string& name, const std::string& help);
  FamilyList& Histogram(const std::string& name, const std::string& help);

  // Metrics of the latest family.
  FamilyList& Add(double value, const MetricLabels& labels = {});
  FamilyList& Add(const FixedHistogram& histogram, const MetricLabels& labels = {});

  const std::vector<prometheus::MetricFamily>& families() const { return families_; }

 private:
  FamilyList& Begin(const std::string& name, const std::string& help, prometheus::MetricType type);
  prometheus::ClientMetric& NewMetric(const MetricLabels& labels);

  MetricLabels common_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace bulkhead
