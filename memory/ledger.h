// MemoryLedger: every byte of a rank's device has a purpose. Claim at planning time, take at start,
// then seal: after READY nothing is allocated. The table it prints is the start-up report.
// Used by one thread, the rank's main one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/arithmetic.h"
#include "memory/device.h"

namespace bulkhead {

// In the order in which they are claimed; a refusal names the first that finds too little left.
enum class MemoryCategory : int {
  kWeights,
  kCommunication,
  kActivations,
  kBlockTables,
  kLogits,
  kWorkspace,
  kKv
};
inline constexpr int kNumMemoryCategories = 7;

// "weights", "communication", ...
const char* MemoryCategoryName(MemoryCategory term);

class MemoryLedger {
 public:
  explicit MemoryLedger(Device& device) : device_(device) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;
  ~MemoryLedger();

  // Announces that `bytes` will be taken for `term`; claims of one term add up.
  void Claim(MemoryCategory term, int64_t bytes);
  // Takes memory that was claimed. RESOURCE_EXHAUSTED (with the term) when the device has no more.
  // Taking more than was claimed is a bug, and so is taking after the seal.
  absl::StatusOr<Buffer> Take(MemoryCategory term, int64_t bytes);
  // One buffer for two terms that lie side by side in memory (block 0 and the KV pool).
  absl::StatusOr<Buffer> TakeTogether(MemoryCategory first, int64_t first_bytes,
                                      MemoryCategory second, int64_t second_bytes);
  // Makes `buffer`, the last that was taken, larger in place by memory that was claimed.
  absl::Status Extend(MemoryCategory term, Buffer& buffer, int64_t more_bytes);
  // Accounts memory that was claimed and that somebody maps without the device (shared between
  // ranks); the device's capacity is charged, and the charge lives as long as the ledger.
  absl::Status TakeMapped(MemoryCategory term, int64_t bytes);
  // Ends start-up. A bug unless everything claimed was taken, to the byte.
  void Seal();
  // What an allocation after the seal gets: refused and counted (fatal in debug builds).
  int64_t refused_after_seal() const { return refused_after_seal_; }
  bool sealed() const { return sealed_; }

  int64_t claimed(MemoryCategory term) const { return claimed_[static_cast<int>(term)]; }
  int64_t taken(MemoryCategory term) const { return taken_[static_cast<int>(term)]; }
  int64_t claimed_bytes() const;
  // One line per term.
  std::string Report() const;

 private:
  absl::StatusOr<Buffer> Allocate(MemoryCategory term, int64_t bytes);
  absl::Status CountTaken(MemoryCategory term, int64_t bytes);

  Device& device_;
  std::array<int64_t, kNumMemoryCategories> claimed_{};
  std::array<int64_t, kNumMemoryCategories> taken_{};
  int64_t mapped_bytes_ = 0;
  int64_t refused_after_seal_ = 0;
  bool sealed_ = false;
};

// Carves aligned views out of one buffer, in order: the way an arena of several matrices is laid
// out. Planning uses the same class with no memory behind it, so plan and run cannot differ.
class BumpAllocator {
 public:
  static constexpr int64_t kAlignBytes = 64;
  explicit BumpAllocator(std::byte* base = nullptr) : base_(base) {}
  // The next `bytes`, aligned; null when there is no memory behind this allocator.
  std::byte* Next(int64_t bytes) {
    const int64_t at = used_;
    used_ += RoundUp(bytes, kAlignBytes);
    return base_ == nullptr ? nullptr : base_ + at;
  }
  int64_t used_bytes() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace bulkhead
