// Tells ThreadSanitizer about the ordering by absl::Mutex and absl::CondVar: Debian's library is
// built without it, so it sees neither. Only in builds with it, whose linker replaces calls of X by
// __wrap_X and of __real_X by X (cmake/BulkheadTargets.cmake). Code that runs inside the library,
// such as a Condition, is suppressed (scripts/suppressions/threads.txt).
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

#define BH_MUTEX(name) _ZN4absl7debian35Mutex##name
#define BH_CONDVAR(name) _ZN4absl7debian37CondVar##name
#define BH_REAL_(symbol) __real_##symbol
#define BH_REAL(symbol) BH_REAL_(symbol)
#define BH_WRAP_(symbol) __wrap_##symbol
#define BH_WRAP(symbol) BH_WRAP_(symbol)

extern "C" {

// Lock and Unlock, for writers and readers.
#define BH_LOCK(symbol)            \
  void BH_REAL(symbol)(void*);     \
  void BH_WRAP(symbol)(void* mu) { \
    BH_REAL(symbol)(mu);           \
    __tsan_acquire(mu);            \
  }
#define BH_UNLOCK(symbol)          \
  void BH_REAL(symbol)(void*);     \
  void BH_WRAP(symbol)(void* mu) { \
    __tsan_release(mu);            \
    BH_REAL(symbol)(mu);           \
  }
BH_LOCK(BH_MUTEX(4LockEv))
BH_UNLOCK(BH_MUTEX(6UnlockEv))
BH_LOCK(BH_MUTEX(10ReaderLockEv))
BH_UNLOCK(BH_MUTEX(12ReaderUnlockEv))

bool BH_REAL(BH_MUTEX(7TryLockEv))(void*);
bool BH_WRAP(BH_MUTEX(7TryLockEv))(void* mu) {
  const bool locked = BH_REAL(BH_MUTEX(7TryLockEv))(mu);
  if (locked) __tsan_acquire(mu);
  return locked;
}

// Waiting releases the lock in between: `mu` of the Mutex itself, or for a CondVar.
#define BH_WAIT(result, symbol, mu, parameters, arguments) \
  result BH_REAL(symbol) parameters;                       \
  result BH_WRAP(symbol) parameters {                      \
    __tsan_release(mu);                                    \
    struct Acquire {                                       \
      void* mutex;                                         \
      ~Acquire() { __tsan_acquire(mutex); }                \
    } acquire{mu};                                         \
    return BH_REAL(symbol) arguments;                      \
  }
BH_WAIT(void, BH_CONDVAR(4WaitEPNS0_5MutexE), mu, (void* cv, void* mu), (cv, mu))
BH_WAIT(bool, BH_CONDVAR(15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE), mu,
        (void* cv, void* mu, absl::Duration t), (cv, mu, t))
BH_WAIT(bool, BH_CONDVAR(16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE), mu,
        (void* cv, void* mu, absl::Time t), (cv, mu, t))
BH_WAIT(void, BH_MUTEX(5AwaitERKNS0_9ConditionE), mu, (void* mu, const void* c), (mu, c))
BH_WAIT(bool, BH_MUTEX(16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE), mu,
        (void* mu, const void* c, absl::Duration t), (mu, c, t))
BH_WAIT(bool, BH_MUTEX(17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE), mu,
        (void* mu, const void* c, absl::Time t), (mu, c, t))

}  // extern "C"
