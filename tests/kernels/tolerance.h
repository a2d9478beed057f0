// How far an f32 result may be from the oracle in double: |a - b| <= tolerance * (1 + |b|).
#pragma once

namespace bulkhead {

inline constexpr double kNormTolerance = 2e-6;
inline constexpr double kRopeTolerance = 2e-6;
inline constexpr double kActivationTolerance = 1e-6;
inline constexpr double kAttendTolerance = 1e-5;
// Queries and weights rounded to bf16, 2^-9 each.
inline constexpr double kAttendInBf16Tolerance = 1e-2;

}  // namespace bulkhead
