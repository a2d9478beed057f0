// Roles of callers. A call needs one of a set of roles; with an empty set it is open to all.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

using RoleSet = uint8_t;  // a set of the bits below

inline constexpr RoleSet kNoRole = 0;
inline constexpr RoleSet kGenerateRole = 1;  // generations, models, tokenize
inline constexpr RoleSet kControlRole = 2;   // bulkhead.v1.Control: drain, limits, load; KV events
inline constexpr RoleSet kMetricsRole = 4;   // /metrics
inline constexpr RoleSet kAllRoles = kGenerateRole | kControlRole | kMetricsRole;

// "generate,control"; "none".
std::string RolesText(RoleSet roles);
// INVALID_ARGUMENT naming what is not a role.
absl::StatusOr<RoleSet> ParseRoles(absl::string_view text);

// The roles of which a gRPC method needs one, by its path: "/bulkhead.v1.Control/Drain".
RoleSet NeedOfMethod(absl::string_view path);

}  // namespace bulkhead
