// PeerMemory: memory of an emulated device that kernels of other devices, on threads of their own,
// write to. Each 16 bytes cycle through states: cleared by the owner, sent by one other device,
// read by the owner, cleared. Each step must be ordered after the previous one in every schedule:
//
// * after the owner's clearing: before its kernel began, the sender had heard from a kernel of the
//   owner that follows the one that cleared;
// * after the owner's reading: by the end of a kernel.
//
// A vector's words may arrive separately: the first read of each lacks the second half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace bulkhead::emulator {

// A device's knowledge of the others: the number of launches that have ended, by device.
class PeerClock {
 public:
  void BeginLaunch() {
    ++launch_;
    known_ = heard_;
  }

 private:
  friend class PeerMemory;
  int64_t launch_ = 0;  // the running launch
  std::map<const PeerClock*, int64_t> known_;
  std::map<const PeerClock*, int64_t> heard_;  // known from the next launch on
};

// All memory of this process that devices share. Thread-safe.
class PeerMemory {
 public:
  static PeerMemory& Get();

  void Add(std::byte* memory, int64_t bytes, const PeerClock& owner);
  void Remove(std::byte* memory);
  // Whether memory at `at` was added and not removed.
  bool Has(const void* at);

  // ---- access to 16 bytes by the clock's device. Returns the error text; null if none
  const char* Send(uint32_t* to, const uint32_t (&words)[4], PeerClock& by);
  const char* Read(const uint32_t* at, uint32_t (&words)[4], PeerClock& by);
  const char* Clear(uint32_t* at, uint32_t nothing, PeerClock& by);

 private:
  enum class State : uint8_t { kCleared, kSent, kRead };
  struct Cell {
    State state = State::kCleared;
    bool came_apart = false;
    int64_t launch = 0;                 // the owner's launch that cleared or read it
    int64_t sent_behind = 0;            // number of the sender's ended launches
    const PeerClock* sender = nullptr;  // the last sender
  };
  struct Region {
    int64_t bytes = 0;
    const PeerClock* owner = nullptr;
    std::vector<Cell> cells;
  };
  // Null: the 16 bytes are in no region.
  Cell* Find(const uint32_t* at, const PeerClock** owner);

  std::mutex mutex_;
  std::map<const std::byte*, Region> regions_;
};

}  // namespace bulkhead::emulator
