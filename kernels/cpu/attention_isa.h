// The attention kernels of one instruction set; attention.h says what a unit is.
#pragma once

#include "kernels/cpu/attention.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// `scratch`: AttentionScratchFloats, 64-byte aligned.
void AttendUnit(const AttentionCall& call, const AttentionUnit& unit, float* scratch);
// Joins the slots of a whole tile and writes its output.
void MergeUnit(const AttentionCall& call, const AttentionUnit& unit);

}  // namespace bulkhead::BH_ISA
