#include "memory/ledger.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr std::array<const char*, kNumMemoryCategories> kMemoryCategoryNames = {
    "weights", "communication", "activations", "block_tables", "logits", "workspace", "kv"};

}  // namespace

const char* MemoryCategoryName(MemoryCategory term) {
  return kMemoryCategoryNames[static_cast<int>(term)];
}

void MemoryLedger::Claim(MemoryCategory term, int64_t bytes) {
  BH_CHECK(!sealed_ && bytes >= 0);
  claimed_[static_cast<int>(term)] += bytes;
}

MemoryLedger::~MemoryLedger() { device_.Release(mapped_bytes_); }

absl::Status MemoryLedger::CountTaken(MemoryCategory term, int64_t bytes) {
  if (sealed_) {
    ++refused_after_seal_;
    BH_DEBUG_CHECK(!sealed_);
    return absl::ResourceExhaustedError(absl::StrCat(MemoryCategoryName(term), ": ",
                                                     FormatBytes(bytes),
                                                     " asked for after the ledger was sealed"));
  }
  BH_CHECK(bytes >= 0 && taken(term) + bytes <= claimed(term));
  taken_[static_cast<int>(term)] += bytes;
  return absl::OkStatus();
}

absl::StatusOr<Buffer> MemoryLedger::Allocate(MemoryCategory term, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = device_.Allocate(bytes);
  absl::Status status = buffer.status();
  // Weights become real as their readers write them, each page where its reader runs.
  if (buffer.ok() && term != MemoryCategory::kWeights) status = device_.Commit(*buffer);
  if (status.ok()) return buffer;
  return absl::Status(status.code(),
                      absl::StrCat(MemoryCategoryName(term), ": ", status.message()));
}

absl::StatusOr<Buffer> MemoryLedger::Take(MemoryCategory term, int64_t bytes) {
  BH_RETURN_IF_ERROR(CountTaken(term, bytes));
  return Allocate(term, bytes);
}

absl::StatusOr<Buffer> MemoryLedger::TakeTogether(MemoryCategory first, int64_t first_bytes,
                                                  MemoryCategory second, int64_t second_bytes) {
  BH_RETURN_IF_ERROR(CountTaken(first, first_bytes));
  BH_RETURN_IF_ERROR(CountTaken(second, second_bytes));
  return Allocate(second, first_bytes + second_bytes);
}

absl::Status MemoryLedger::Extend(MemoryCategory term, Buffer& buffer, int64_t more_bytes) {
  BH_RETURN_IF_ERROR(CountTaken(term, more_bytes));
  const absl::Status extended = device_.Extend(buffer, more_bytes);
  return absl::Status(extended.code(),
                      absl::StrCat(MemoryCategoryName(term), ": ", extended.message()));
}

absl::Status MemoryLedger::TakeMapped(MemoryCategory term, int64_t bytes) {
  BH_RETURN_IF_ERROR(CountTaken(term, bytes));
  absl::Status charged = device_.Charge(bytes);
  if (charged.ok()) {
    mapped_bytes_ += bytes;
    return charged;
  }
  taken_[static_cast<int>(term)] -= bytes;
  return absl::Status(charged.code(),
                      absl::StrCat(MemoryCategoryName(term), ": ", charged.message()));
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
