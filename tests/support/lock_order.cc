// A later Abseil than Debian 12's, with its deadlock detector built in, is not told in release
// builds when a mutex is gone: a new one at the same address then seems to be part of a cycle.
#include "absl/synchronization/mutex.h"

namespace bulkhead {
namespace {

[[maybe_unused]] const bool kIgnored = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

}  // namespace
}  // namespace bulkhead
