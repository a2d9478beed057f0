// How a token is drawn on a device: from the likeliest ids of its row of logits. Plain: .cu files
// include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

// So many of the likeliest ids of its columns each rank brings.
inline constexpr int kCandidates = 256;

}  // namespace bulkhead
