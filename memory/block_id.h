// BlockId: a block of the KV cache, the same one on every rank.
#pragma once

#include <cstdint>

namespace bulkhead {

using BlockId = int32_t;  // from 1 on: block 0 is for padding

}  // namespace bulkhead
