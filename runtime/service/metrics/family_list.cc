#include "runtime/service/metrics/family_list.h"

#include <limits>

namespace bulkhead {

FamilyList& FamilyList::Begin(const std::string& name, const std::string& help,
                              prometheus::MetricType type) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  return *this;
}

FamilyList& FamilyList::Gauge(const std::string& name, const std::string& help) {
  return Begin(name, help, prometheus::MetricType::Gauge);
}

FamilyList& FamilyList::Counter(const std::string& name, const std::string& help) {
  return Begin(name, help, prometheus::MetricType::Counter);
}

FamilyList& FamilyList::Histogram(const std::string& name, const std::string& help) {
  return Begin(name, help, prometheus::MetricType::Histogram);
}

prometheus::ClientMetric& FamilyList::NewMetric(const MetricLabels& labels) {
  prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
  metric.label.reserve(common_.size() + labels.size());
  for (const auto& [name, value] : common_) metric.label.push_back({name, value});
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

FamilyList& FamilyList::Add(double value, const MetricLabels& labels) {
  prometheus::ClientMetric& metric = NewMetric(labels);
  if (families_.back().type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return *this;
}

FamilyList& FamilyList::Add(const FixedHistogram& histogram, const MetricLabels& labels) {
  auto& out = NewMetric(labels).histogram;
  out.sample_count = histogram.count();
  out.sample_sum = histogram.sum();
  out.bucket.reserve(histogram.bounds().size() + 1);
  uint64_t up_to = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    up_to += histogram.count(i);
    out.bucket.push_back({up_to, histogram.bounds()[i]});
  }
  out.bucket.push_back({histogram.count(), std::numeric_limits<double>::infinity()});
  return *this;
}

}  // namespace bulkhead
