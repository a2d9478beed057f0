// An Abseil newer than Debian 12's, built with its deadlock detector, is not told in release builds
// when a mutex is destroyed: a new one at the same address then seems to be part of a cycle.
#include "absl/synchronization/mutex.h"

namespace bulkhead {
namespace {

[[maybe_unused]] const bool kIgnored = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

}  // namespace
}  // namespace bulkhead
