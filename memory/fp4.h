// E2M1 (fp4) values. Plain C++: kernel sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

// The values times two are 0, 1, 2, 3, 4, 6, 8, 12 and, from code 8 on, their negatives; a step is
// that plus 12, so that steps are unsigned numbers with the zero 12.
inline constexpr uint8_t kFp4Zero = 12;
alignas(16) inline constexpr uint8_t kFp4Steps[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                      12, 11, 10, 9,  8,  6,  4,  0};

}  // namespace bulkhead
