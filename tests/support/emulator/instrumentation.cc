// Called by the compiler before each read and write of a kernel: the emulator's kernels are
// compiled with -fsanitize=thread, which instruments every access, and linked with these functions
// in place of that sanitizer's library.
#include <cstddef>

#include "tests/support/emulator/block.h"

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl*,misc-use-internal-linkage)
#define BH_HOOK(name, bytes, aligned, kind)                                                  \
  void name(void* at) {                                                                      \
    using namespace bulkhead::emulator; /* NOLINT(google-build-using-namespace) */           \
    Block::OnPlainAccess(at, bytes, aligned, AccessKind::kind, __builtin_return_address(0)); \
  }
#define BH_HOOKS(bytes)                                      \
  BH_HOOK(__tsan_read##bytes, bytes, true, kRead)            \
  BH_HOOK(__tsan_write##bytes, bytes, true, kWrite)          \
  BH_HOOK(__tsan_unaligned_read##bytes, bytes, false, kRead) \
  BH_HOOK(__tsan_unaligned_write##bytes, bytes, false, kWrite)
extern "C" {
void __tsan_init() {}
BH_HOOKS(1)
BH_HOOKS(2)
BH_HOOKS(4)
BH_HOOKS(8)
BH_HOOKS(16)
// For host code in the same files; kernels do not call them.
char __tsan_atomic8_load(const volatile char* at, int /*order*/) {
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_add(volatile int* at, int value, int /*order*/) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* at, int value, int /*order*/) {
  return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}
void __tsan_vptr_update(void** /*at*/, void* /*value*/) {}
void __tsan_read_range(void* at, size_t bytes) {
  using namespace bulkhead::emulator;  // NOLINT(google-build-using-namespace)
  Block::OnPlainAccess(at, bytes, false, AccessKind::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  using namespace bulkhead::emulator;  // NOLINT(google-build-using-namespace)
  Block::OnPlainAccess(at, bytes, false, AccessKind::kWrite, __builtin_return_address(0));
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl*,misc-use-internal-linkage)
