// PeerMemory: memory of an emulated device that kernels of other devices, on threads of their own,
// write to. Each 16 bytes go round: cleared by the owner, sent by one other device, read by the
// owner, cleared. Every step must be ordered behind the one before it, however the threads run:
//
// * behind the owner's clearing by what the sender had heard, before its kernel began, from a
// kernel
//   of the owner behind the one that cleared;
// * behind the owner's reading by the end of a kernel.
//
// Words of one vector may come apart: the first read of each sees the second half missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace bulkhead::emulator {

// What a device knows of the others': a number of launches that have ended, by device.
class PeerClock {
 public:
  void BeginLaunch() {
    ++launch_;
    known_ = heard_;
  }

 private:
  friend class PeerMemory;
  int64_t launch_ = 0;  // that runs
  std::map<const PeerClock*, int64_t> known_;
  std::map<const PeerClock*, int64_t> heard_;  // from the next launch on
};

// All memory of this process that devices share. Thread-safe.
class PeerMemory {
 public:
  static PeerMemory& Get();

  void Add(std::byte* memory, int64_t bytes, const PeerClock& owner);
  void Remove(std::byte* memory);
  // Whether it was added and not removed.
  bool Has(const void* at);

  // ---- of 16 bytes, by the device of the clock. What is wrong with it; null if nothing is.
  const char* Send(uint32_t* to, const uint32_t (&words)[4], PeerClock& by);
  const char* Read(const uint32_t* at, uint32_t (&words)[4], PeerClock& by);
  const char* Clear(uint32_t* at, uint32_t nothing, PeerClock& by);

 private:
  enum class State : uint8_t { kCleared, kSent, kRead };
  struct Cell {
    State state = State::kCleared;
    bool came_apart = false;
    int64_t launch = 0;                 // of the owner, that cleared or read it
    int64_t sent_behind = 0;            // launches of the sender that had ended
    const PeerClock* sender = nullptr;  // the last one
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
