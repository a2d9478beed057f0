// BlockId: a block of the KV cache, the same id on every rank.
#pragma once

#include <cstdint>

namespace bulkhead {

using BlockId = int32_t;  // starts at 1: block 0 is for padding

}  // namespace bulkhead
