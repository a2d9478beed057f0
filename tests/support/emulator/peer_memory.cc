#include "tests/support/emulator/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace bulkhead::emulator {
namespace {

constexpr size_t kCellBytes = 16;
constexpr char kNoPeerMemory[] = "at what is not 16 bytes of memory that devices share";

}  // namespace

PeerMemory& PeerMemory::Get() {
  static PeerMemory* const memory = new PeerMemory();
  return *memory;
}

void PeerMemory::Add(std::byte* memory, int64_t bytes, const PeerClock& owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_[memory] = {bytes, &owner, std::vector<Cell>(bytes / kCellBytes)};
}

void PeerMemory::Remove(std::byte* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  BH_CHECK(regions_.erase(memory) == 1);
}

bool PeerMemory::Has(const void* at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return regions_.contains(static_cast<const std::byte*>(at));
}

PeerMemory::Cell* PeerMemory::Find(const uint32_t* at, const PeerClock** owner) {
  const auto* const begin = reinterpret_cast<const std::byte*>(at);
  auto region = regions_.upper_bound(begin);
  if (region == regions_.begin()) return nullptr;
  --region;
  const int64_t offset = begin - region->first;
  if (offset % kCellBytes != 0 || offset >= region->second.bytes) return nullptr;
  *owner = region->second.owner;
  return &region->second.cells[offset / kCellBytes];
}

const char* PeerMemory::Send(uint32_t* to, const uint32_t (&words)[4], PeerClock& by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PeerClock* owner = nullptr;
  Cell* const cell = Find(to, &owner);
  if (cell == nullptr) return kNoPeerMemory;
  if (owner == &by) return "it sends to its own device";
  if (cell->state != State::kCleared) return "it sends to what its owner has not cleared";
  if (cell->launch > 0 && by.known_[owner] < cell->launch) {
    return "it sends to what it does not know to be cleared";
  }
  std::memcpy(to, words, sizeof(words));
  cell->state = State::kSent;
  cell->came_apart = false;
  cell->sender = &by;
  cell->sent_behind = by.launch_ - 1;
  return nullptr;
}

const char* PeerMemory::Read(const uint32_t* at, uint32_t (&words)[4], PeerClock& by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PeerClock* owner = nullptr;
  Cell* const cell = Find(at, &owner);
  if (cell == nullptr) return kNoPeerMemory;
  if (owner != &by) return "it reads what has come to another device";
  std::memcpy(words, at, sizeof(words));
  if (cell->state == State::kCleared) return nullptr;
  if (!cell->came_apart) {
    cell->came_apart = true;
    words[2] = words[3] = ~0U;
    return nullptr;
  }
  cell->state = State::kRead;
  cell->launch = by.launch_;
  int64_t& heard = by.heard_[cell->sender];
  heard = std::max(heard, cell->sent_behind);
  return nullptr;
}

const char* PeerMemory::Clear(uint32_t* at, uint32_t nothing, PeerClock& by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PeerClock* owner = nullptr;
  Cell* const cell = Find(at, &owner);
  if (cell == nullptr) return kNoPeerMemory;
  if (owner != &by) return "it clears what has come to another device";
  if (cell->state == State::kSent) return "it clears what it has not read";
  if (cell->state == State::kRead && cell->launch == by.launch_) {
    return "it clears what this kernel reads";
  }
  const uint32_t all[4] = {nothing, nothing, nothing, nothing};
  std::memcpy(at, all, sizeof(all));
  cell->state = State::kCleared;
  cell->launch = by.launch_;
  return nullptr;
}

}  // namespace bulkhead::emulator
