// How long attention takes over a cache of each format, beside bf16 in the same round.
#pragma once

#include <string>

#include "bench/machine.h"

namespace bulkhead {

// Measures those whose names begin with `filter`: attend/CONTEXT/HEADSxKV_HEADSxHEAD_DIM/TOKENS.
void MeasureAttention(Machine& machine, const std::string& filter);

}  // namespace bulkhead
