#include "runtime/service/host_pressure.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/log.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
// Less than this, within what calls need at any moment, is not worth the time of a trim.
constexpr int64_t kWorthTrimming = int64_t{32} << 20;
constexpr int kReadsBetweenTrims = 50;        // 5 s
constexpr int kReadsBetweenUrgentTrims = 10;  // 1 s: memory has grown, or is short
constexpr int kReadsUntilFreed = 10;          // 1 s: calls often end together
constexpr int kReadsBetweenFreeing = 20;      // 2 s
constexpr int kHysteresis = 5;

}  // namespace

HostPressure::HostPressure(int64_t total_bytes, HostCounters* counters,
                           std::function<int64_t()> resident_bytes)
    : total_bytes_(total_bytes),
      counters_(counters),
      resident_bytes_(std::move(resident_bytes)),
      thread_(kInterval, PeriodicThread::First::kNow, [this] { Read(); }) {}

void HostPressure::SetReady() { counters_->resident_bytes_at_ready = resident_bytes_(); }

void HostPressure::Read() {
  const absl::MutexLock lock(&mutex_);
  const int64_t resident = resident_bytes_();
  counters_->resident_bytes.Set(resident);
  const int64_t at_ready = counters_->resident_bytes_at_ready;
  if (at_ready == 0) return;
  const int64_t bytes = std::max<int64_t>(resident - at_ready, 0);
  if (total_bytes_ > 0) {
    const int percent = static_cast<int>(std::min<int64_t>(bytes * 100 / total_bytes_, 1000));
    Say(percent, bytes);
    percent_ = percent;  // after the line that logs what it changes
  }
  Trim(bytes);
}

void HostPressure::Say(int percent, int64_t bytes) {
  int now = 0;
  for (const int threshold : {kRefuseCalls, kRefuseConnections, kCloseConnections}) {
    if (percent >= threshold - (said_ >= threshold ? kHysteresis : 0)) now = threshold;
  }
  if (now == said_) return;
  const bool eased = now < said_;
  said_ = now;
  BH_LOG(kWarning) << "clients hold " << FormatBytes(bytes) << ", " << percent << " % of the "
                   << FormatBytes(total_bytes_) << " that this host has for them: "
                   << (now == kCloseConnections
                           ? "connections with most that was not admitted are closed"
                       : now == kRefuseConnections ? "new connections are refused"
                       : now == kRefuseCalls       ? "new calls are refused"
                                                   : "calls are taken again")
                   << (eased && now != 0 ? " still" : "");
}

void HostPressure::Trim(int64_t bytes) {
  ++reads_since_trim_;
  if (call_ended_) ++reads_since_call_ended_;
  const bool freed =
      reads_since_call_ended_ > kReadsUntilFreed && reads_since_trim_ >= kReadsBetweenFreeing;
  const bool grown = bytes > after_trim_ + kWorthTrimming ||
                     (total_bytes_ > 0 && bytes * 100 >= total_bytes_ * kTrimHeap);
  const bool due = bytes >= kWorthTrimming &&
                   reads_since_trim_ >= (grown ? kReadsBetweenUrgentTrims : kReadsBetweenTrims);
  if (!freed && !due) return;
  call_ended_ = false;
  reads_since_call_ended_ = 0;
  malloc_trim(0);
  reads_since_trim_ = 0;
  after_trim_ = std::max<int64_t>(resident_bytes_() - counters_->resident_bytes_at_ready, 0);
}

void KeepHeapSmall() {
  constexpr int kHeaps = 4;
  constexpr int kApartBytes = 128 << 10;
  mallopt(M_ARENA_MAX, kHeaps);
  mallopt(M_MMAP_THRESHOLD, kApartBytes);
  mallopt(M_TRIM_THRESHOLD, kApartBytes);
}

}  // namespace bulkhead
