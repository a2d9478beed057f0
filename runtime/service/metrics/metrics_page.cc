#include "runtime/service/metrics/metrics_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "prometheus/text_serializer.h"
#include "runtime/service/metrics/families.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// About 600 lines with the longest model name, and about 24 per rank.
constexpr int64_t kGroupBytes = int64_t{512} << 10;
constexpr int64_t kRankBytes = int64_t{16} << 10;

}  // namespace

int64_t MaxMetricsBytes(int64_t ranks) { return kGroupBytes + ranks * kRankBytes; }

MetricsPage::MetricsPage(ServiceCore* core)
    : core_(core), started_unix_s_(absl::ToUnixSeconds(absl::Now())) {}

absl::StatusOr<std::string> MetricsPage::Text() const {
  BH_ASSIGN_OR_RETURN(const MetricsReading reading, ReadMetrics(*core_, started_unix_s_));
  FamilyList list;
  AddVllmFamilies(reading, list);
  AddOwnFamilies(reading, list);
  AddRankFamilies(reading, list);
  std::string text =
      prometheus::TextSerializer().prometheus::Serializer::Serialize(list.families());
  if (static_cast<int64_t>(text.size()) > core_->quotas.metrics_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "the metrics have ", text.size(), " bytes; planned are ", core_->quotas.metrics_bytes)),
        reason::kHostMemory);
  }
  return text;
}

}  // namespace bulkhead
