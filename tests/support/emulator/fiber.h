// Fiber: a function with its own stack that runs when resumed and returns to the resumer when it
// yields. x86-64 with the System V calling convention.
#pragma once

#include <cstddef>
#include <memory>

namespace bulkhead::emulator {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // Discards what it ran before, in any state, and starts entry(argument) at the next Resume.
  // `entry` never returns: it yields for the last time.
  void Begin(Entry entry, void* argument);
  // Runs the fiber until it yields; called by its owner.
  void Resume();
  // Returns to Resume's caller; called by the fiber itself.
  void Yield();
  // Whether the address is on its stack.
  bool Owns(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= stack_.get() && at < stack_.get() + kStackBytes;
  }

 private:
  static constexpr size_t kStackBytes = 128 << 10;
  static void Start();

  std::unique_ptr<std::byte[]> stack_;
  void* stack_pointer_ = nullptr;  // of the fiber while it does not run
  void* owner_pointer_ = nullptr;  // of the resumer while it runs
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace bulkhead::emulator
