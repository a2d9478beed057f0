// Fiber: a function with its own stack that runs from a switch to it until it switches to another.
// x86-64 with the System V calling convention.
#pragma once

#include <cstddef>
#include <memory>

namespace bulkhead::emulator {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // Discards what it ran before, in any state, and starts entry(argument) at the next switch to it.
  // `entry` never returns. Fibers with different numbers have their frames in different cache sets.
  void Begin(Entry entry, void* argument, int number);
  // Called on the running fiber, or on a Fiber that has not started, which then represents the
  // caller: runs `next` until something switches back.
  void SwitchTo(Fiber& next);
  // Whether the address is on its stack.
  bool Owns(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= stack_.get() && at < stack_.get() + kStackBytes;
  }

 private:
  static constexpr size_t kFrameBytes = 128 << 10;
  static constexpr size_t kNumbers = 128;  // distinct cache offsets
  static constexpr size_t kSkipBytes = 5 * 64;
  static constexpr size_t kStackBytes = kFrameBytes + kNumbers * kSkipBytes;
  static void Start(Fiber* self);

  void* stack_pointer_ = nullptr;  // while it does not run
  std::unique_ptr<std::byte[]> stack_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace bulkhead::emulator
