// BH_CHECK: our own invariants, always on. A failed check is a bug of ours: it prints the place and
// ends the process with exit code 70. Never used on anything that came from outside.
#pragma once

namespace bulkhead {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace bulkhead

#define BH_CHECK(condition)                                                    \
  do {                                                                         \
    if (!(condition)) ::bulkhead::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// The same in debug builds (BH_DEBUG_BUILD is 0 or 1, from CMake); where it is off, the code after
// it must cope.
#define BH_DEBUG_CHECK(condition)                              \
  do {                                                         \
    if (BH_DEBUG_BUILD && !(condition)) {                      \
      ::bulkhead::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                          \
  } while (false)
