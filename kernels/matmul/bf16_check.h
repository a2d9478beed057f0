// Whether vdpbf16ps computes what ActivationDType::kBf16 says: Intel's manual and AMD's leave how
// it rounds to each other's reading, so it is tried.
#pragma once

namespace bulkhead {

// Compares some 50,000 pairs of products, denormal, infinite and cancelling ones among them, with
// fused multiply-adds; once. The CPU must have the instruction.
bool Bf16DotsAreFmas();

}  // namespace bulkhead
