#include "runtime/service/byte_budget.h"

#include "base/check.h"

namespace bulkhead {

bool ByteBudget::Hold::GrowTo(int64_t bytes, Use use) {
  if (bytes <= bytes_) return true;
  BH_CHECK(budget_ != nullptr);
  if (!budget_->counter_->AddWithin(bytes - bytes_, budget_->limit_bytes(use))) return false;
  bytes_ = bytes;
  return true;
}

void ByteBudget::Hold::ShrinkTo(int64_t bytes) {
  if (bytes >= bytes_) return;
  budget_->counter_->Sub(bytes_ - bytes);
  bytes_ = bytes;
}

std::optional<ByteBudget::Hold> ByteBudget::Take(int64_t bytes) {
  Hold hold(this);
  if (!hold.GrowTo(bytes, Use::kNewWork)) return std::nullopt;
  return hold;
}

}  // namespace bulkhead
