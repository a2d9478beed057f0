#include "memory/device_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/log.h"

namespace bulkhead {

DeviceWatch::DeviceWatch(Options options, int64_t sealed_free_bytes)
    : options_(std::move(options)),
      reading_{sealed_free_bytes, sealed_free_bytes, sealed_free_bytes, 0} {
  if (options_.period == absl::InfiniteDuration()) return;
  thread_.emplace(options_.period, PeriodicThread::First::kAfterPeriod, [this] {
    const std::string line = Look();
    if (!line.empty()) BH_LOG(kWarning) << line;
  });
}

DeviceWatchReading DeviceWatch::reading() const {
  const absl::MutexLock lock(&mutex_);
  return reading_;
}

std::string DeviceWatch::Look() {
  const absl::StatusOr<int64_t> now = options_.free_bytes();
  DeviceWatchReading before;
  {
    const absl::MutexLock lock(&mutex_);
    before = reading_;
    if (now.ok()) {
      reading_.free_bytes = *now;
      reading_.least_free_bytes = std::min(before.least_free_bytes, *now);
    } else {
      ++reading_.failed_looks_total;
    }
  }
  if (!now.ok()) {
    if (before.failed_looks_total > 0) return "";  // reported once
    return absl::StrCat(options_.device,
                        " does not report its free memory: ", now.status().message());
  }
  if (*now == before.free_bytes) return "";
  const int64_t missing = before.sealed_free_bytes - *now;
  if (missing <= 0) {
    return absl::StrCat(options_.device, " has ", FormatBytes(*now),
                        " free, all that it had when the ledger was sealed");
  }
  return absl::StrCat(options_.device, " has ", FormatBytes(*now), " free, ", FormatBytes(missing),
                      " less than when the ledger was sealed; not allocated by us, as we allocate "
                      "nothing after that; other processes on it: ",
                      options_.others());
}

}  // namespace bulkhead
