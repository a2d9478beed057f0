#include "tests/support/emulator/fiber.h"

#include <sanitizer/asan_interface.h>

#include <cstdint>

// Saves the callee-saved registers on the stack and the stack's address in *from, then resumes
// where `to` was saved.
extern "C" void bh_fiber_switch(void** from, void* to);
asm(R"(.text
.globl bh_fiber_switch
.type bh_fiber_switch, @function
bh_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bh_fiber_switch, . - bh_fiber_switch
)");

namespace bulkhead::emulator {
namespace {

// Passes a new fiber what no register can.
thread_local Fiber* beginning = nullptr;

}  // namespace

void Fiber::Begin(Entry entry, void* argument) {
  if (stack_ == nullptr) stack_.reset(new std::byte[kStackBytes]);
  // An abandoned fiber leaves poisoned frames behind.
  ASAN_UNPOISON_MEMORY_REGION(stack_.get(), kStackBytes);
  entry_ = entry;
  argument_ = argument;
  const uintptr_t top = (reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes) & ~uintptr_t{15};
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // alignment as after a call: 8 off a multiple of 16
  *--at = reinterpret_cast<void*>(&Start);
  for (int i = 0; i < 6; ++i) *--at = nullptr;
  stack_pointer_ = at;
}

void Fiber::Start() {
  Fiber* const self = beginning;
  self->entry_(self->argument_);
}

void Fiber::Resume() {
  beginning = this;
  bh_fiber_switch(&owner_pointer_, stack_pointer_);
}

void Fiber::Yield() { bh_fiber_switch(&stack_pointer_, owner_pointer_); }

}  // namespace bulkhead::emulator
