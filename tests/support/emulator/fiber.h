// Fiber: a function with a stack of its own that runs when it is switched to and goes back to who
// switched when it yields. x86-64 with the System V calling convention.
#pragma once

#include <cstddef>
#include <memory>

namespace bulkhead::emulator {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // Forgets what it ran before, wherever that was, and begins entry(argument) at the next Resume.
  // `entry` never returns: it yields for the last time.
  void Begin(Entry entry, void* argument);
  // Runs the fiber until it yields; by who owns it.
  void Resume();
  // Goes back to Resume's caller; by the fiber itself.
  void Yield();

 private:
  static constexpr size_t kStackBytes = 128 << 10;
  static void Start();

  std::unique_ptr<std::byte[]> stack_;
  void* stack_pointer_ = nullptr;  // of the fiber while it does not run
  void* owner_pointer_ = nullptr;  // of who resumed it while it runs
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace bulkhead::emulator
