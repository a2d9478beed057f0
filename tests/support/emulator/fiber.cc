#include "tests/support/emulator/fiber.h"

#include <sanitizer/asan_interface.h>

#include <cstdint>

namespace bulkhead::emulator {

// Stacks are large enough that malloc maps them, all at the same offset in a page.
void Fiber::Begin(Entry entry, void* argument, int number) {
  if (stack_ == nullptr) stack_.reset(new std::byte[kStackBytes]);
  // An abandoned fiber leaves poisoned frames behind.
  ASAN_UNPOISON_MEMORY_REGION(stack_.get(), kStackBytes);
  entry_ = entry;
  argument_ = argument;
  const uintptr_t end = reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes;
  const uintptr_t top = (end - number % kNumbers * kSkipBytes) & ~uintptr_t{15};
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // alignment as after a call: 8 off a multiple of 16
  *--at = reinterpret_cast<void*>(&Start);
  stack_pointer_ = at;
}

void Fiber::Start(Fiber* self) { self->entry_(self->argument_); }

// Pushes the resume address and jumps to `next`'s. A jump, not a return: lanes in lockstep have the
// same callers, which the processor's return stack then predicts. For the compiler it is an opaque
// call.
[[gnu::noipa]] void Fiber::SwitchTo(Fiber& next) {
  Fiber* to = &next;  // becomes Start's argument
  void** from = &stack_pointer_;
  void* stack = next.stack_pointer_;
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"  // this function's red zone
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rsi)\n\t"
      "movq %%rdx, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(to), "+S"(from), "+d"(stack)
      :
      : "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}

}  // namespace bulkhead::emulator
