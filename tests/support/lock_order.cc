// Debian 13's Abseil is built to check the order of locks, but its header, in a release build, does
// not tell it when a mutex is gone: a new one at the same address then seems to be part of a cycle.
#include "absl/synchronization/mutex.h"

namespace bulkhead {
namespace {

[[maybe_unused]] const bool kIgnored = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

}  // namespace
}  // namespace bulkhead
