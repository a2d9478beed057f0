// MemoryLedger: accounts for every byte of a rank's device memory. Claim at planning time, take at
// start, then seal: after READY nothing is allocated. Its table is the start-up report. Used by the
// rank's main thread only.
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

// In claim order; a refusal names the first category that does not fit.
enum class MemoryCategory : int {
  kWeights,
  kCommunication,
  kActivations,
  kBlockTables,
  kLogits,
  kState,
  kWorkspace,
  kDraftModel,  // a whole draft model except its KV cache, which is in kKv
  kKv
};
inline constexpr int kNumMemoryCategories = 9;
// Bytes by category.
using CategoryBytes = std::array<int64_t, kNumMemoryCategories>;

// "weights", "communication", ...
const char* MemoryCategoryName(MemoryCategory category);

class MemoryLedger {
 public:
  explicit MemoryLedger(Device& device) : device_(device) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;
  ~MemoryLedger();

  // Announces that `bytes` will be taken for `category`; claims of one category add up.
  void Claim(MemoryCategory category, int64_t bytes);
  // Allocates claimed memory. RESOURCE_EXHAUSTED (with the category) when the device is out of
  // memory. Taking more than claimed, or after the seal, is a bug.
  absl::StatusOr<Buffer> Take(MemoryCategory category, int64_t bytes);
  // One buffer for two categories (block 0 and the KV pool).
  absl::StatusOr<Buffer> TakeTogether(MemoryCategory first, int64_t first_bytes,
                                      MemoryCategory second, int64_t second_bytes);
  // Extends `buffer`, the last one taken, in place by claimed memory.
  absl::Status Extend(MemoryCategory category, Buffer& buffer, int64_t more_bytes);
  // Accounts claimed memory that is mapped without the device (shared between ranks); charged to
  // the device's capacity for the lifetime of the ledger.
  absl::Status TakeMapped(MemoryCategory category, int64_t bytes);
  // Ends start-up. A bug unless everything claimed was taken, to the byte.
  void Seal();
  // Allocations after the seal are refused and counted (fatal in debug builds).
  int64_t refused_after_seal() const { return refused_after_seal_; }
  bool sealed() const { return sealed_; }

  int64_t claimed(MemoryCategory category) const { return claimed_[static_cast<int>(category)]; }
  int64_t taken(MemoryCategory category) const { return taken_[static_cast<int>(category)]; }
  int64_t claimed_bytes() const;
  // One line per category.
  std::string Report() const;

 private:
  absl::StatusOr<Buffer> Allocate(MemoryCategory category, int64_t bytes);
  absl::Status CountTaken(MemoryCategory category, int64_t bytes);

  Device& device_;
  CategoryBytes claimed_{};
  CategoryBytes taken_{};
  int64_t mapped_bytes_ = 0;
  int64_t refused_after_seal_ = 0;
  bool sealed_ = false;
};

// Allocates aligned views from one buffer, in order: the layout of an arena with several matrices.
// Planning uses the same class without memory, so plan and run cannot differ.
class BumpAllocator {
 public:
  static constexpr int64_t kAlignBytes = 64;
  explicit BumpAllocator(std::byte* base = nullptr) : base_(base) {}
  // The next `bytes`, aligned; null if the allocator only plans.
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
