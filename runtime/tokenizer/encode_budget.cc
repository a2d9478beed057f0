#include "runtime/tokenizer/encode_budget.h"

#include "absl/strings/str_cat.h"

namespace bulkhead {

absl::Status Allowance::Check(size_t amount) const {
  if (amount <= left_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(doing_, " ", text_bytes_, " bytes of text makes more than ", limit_, " ", unit_,
                   ", the most that is allowed (", kMaxGrowth, " for each byte, but at least ",
                   kAlwaysAllowed, " and at most ", kMaxTextBytes, ")"));
}

}  // namespace bulkhead
