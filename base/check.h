// BH_CHECK: internal invariants, always on. A failed check is our bug: it prints the location and
// exits with code 70. Never used on external input.
#pragma once

namespace bulkhead {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace bulkhead

#define BH_CHECK(condition)                                                    \
  do {                                                                         \
    if (!(condition)) ::bulkhead::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// Same, in debug builds only (BH_DEBUG_BUILD is 0 or 1, from CMake); the code after it must handle
// the condition being false.
#define BH_DEBUG_CHECK(condition)                              \
  do {                                                         \
    if (BH_DEBUG_BUILD && !(condition)) {                      \
      ::bulkhead::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                          \
  } while (false)
