#include "memory/ledger.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr std::array<const char*, kNumMemoryCategories> kMemoryCategoryNames = {
    "weights",   "communication", "activations", "block_tables", "logits", "state",
    "workspace", "draft_model",   "kv"};

}  // namespace

const char* MemoryCategoryName(MemoryCategory category) {
  return kMemoryCategoryNames[static_cast<int>(category)];
}

void MemoryLedger::Claim(MemoryCategory category, int64_t bytes) {
  BH_CHECK(!sealed_ && bytes >= 0);
  claimed_[static_cast<int>(category)] += bytes;
}

MemoryLedger::~MemoryLedger() { device_.Release(mapped_bytes_); }

absl::Status MemoryLedger::CountTaken(MemoryCategory category, int64_t bytes) {
  if (sealed_) {
    ++refused_after_seal_;
    BH_DEBUG_CHECK(!sealed_);
    return absl::ResourceExhaustedError(absl::StrCat(MemoryCategoryName(category), ": ",
                                                     FormatBytes(bytes),
                                                     " requested after the ledger was sealed"));
  }
  BH_CHECK(bytes >= 0 && taken(category) + bytes <= claimed(category));
  taken_[static_cast<int>(category)] += bytes;
  return absl::OkStatus();
}

absl::StatusOr<Buffer> MemoryLedger::Allocate(MemoryCategory category, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = device_.Allocate(bytes);
  absl::Status status = buffer.status();
  // Weights are committed by the threads that write them, so that each page is placed on its
  // reader's NUMA node.
  if (buffer.ok() && category != MemoryCategory::kWeights) status = device_.Commit(*buffer);
  if (status.ok()) return buffer;
  return absl::Status(status.code(),
                      absl::StrCat(MemoryCategoryName(category), ": ", status.message()));
}

absl::StatusOr<Buffer> MemoryLedger::Take(MemoryCategory category, int64_t bytes) {
  BH_RETURN_IF_ERROR(CountTaken(category, bytes));
  if (bytes == 0) return Buffer();
  return Allocate(category, bytes);
}

absl::StatusOr<Buffer> MemoryLedger::TakeTogether(MemoryCategory first, int64_t first_bytes,
                                                  MemoryCategory second, int64_t second_bytes) {
  BH_RETURN_IF_ERROR(CountTaken(first, first_bytes));
  BH_RETURN_IF_ERROR(CountTaken(second, second_bytes));
  return Allocate(second, first_bytes + second_bytes);
}

absl::Status MemoryLedger::Extend(MemoryCategory category, Buffer& buffer, int64_t more_bytes) {
  BH_RETURN_IF_ERROR(CountTaken(category, more_bytes));
  const absl::Status extended = device_.Extend(buffer, more_bytes);
  return absl::Status(extended.code(),
                      absl::StrCat(MemoryCategoryName(category), ": ", extended.message()));
}

absl::Status MemoryLedger::TakeMapped(MemoryCategory category, int64_t bytes) {
  BH_RETURN_IF_ERROR(CountTaken(category, bytes));
  absl::Status charged = device_.Charge(bytes);
  if (charged.ok()) {
    mapped_bytes_ += bytes;
    return charged;
  }
  taken_[static_cast<int>(category)] -= bytes;
  return absl::Status(charged.code(),
                      absl::StrCat(MemoryCategoryName(category), ": ", charged.message()));
}

void MemoryLedger::Seal() {
  BH_CHECK(claimed_ == taken_);
  sealed_ = true;
}

int64_t MemoryLedger::claimed_bytes() const {
  int64_t sum = 0;
  for (const int64_t bytes : claimed_) sum += bytes;
  return sum;
}

std::string MemoryLedger::Report() const {
  std::string report;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    absl::StrAppendFormat(&report, "  %-14s %12s\n", kMemoryCategoryNames[i],
                          FormatBytes(claimed_[i]));
  }
  absl::StrAppendFormat(&report, "  %-14s %12s\n", "total", FormatBytes(claimed_bytes()));
  return report;
}

}  // namespace bulkhead
