#include "runtime/service/access/roles.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

constexpr std::pair<absl::string_view, RoleSet> kNames[] = {
    {"generate", kGenerateRole}, {"control", kControlRole}, {"metrics", kMetricsRole}};

struct Need {
  absl::string_view prefix;
  RoleSet roles;
};

// The first match applies. Methods not listed need a caller with any role: reflection, and methods
// that do not exist.
constexpr Need kNeeds[] = {
    {"/grpc.health.v1.Health/", kNoRole},
    {"/vllm.grpc.engine.VllmEngine/HealthCheck", kNoRole},
    // Events name the tokens of others' prompts.
    {"/vllm.grpc.engine.VllmEngine/SubscribeKvEvents", kControlRole},
    {"/vllm.grpc.engine.VllmEngine/", kGenerateRole},
    {"/bulkhead.v1.Generation/", kGenerateRole},
    {"/bulkhead.v1.Control/GetModelInfo", kGenerateRole | kControlRole},
    {"/bulkhead.v1.Control/", kControlRole},
};

}  // namespace

std::string RolesText(RoleSet roles) {
  std::vector<absl::string_view> names;
  for (const auto& [name, role] : kNames) {
    if ((roles & role) != 0) names.push_back(name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ",");
}

absl::StatusOr<RoleSet> ParseRoles(absl::string_view text) {
  RoleSet roles = kNoRole;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    RoleSet found = kNoRole;
    for (const auto& [name, role] : kNames) {
      if (part == name) found = role;
    }
    if (found == kNoRole) {
      return absl::InvalidArgumentError("roles are generate, control and metrics, with commas");
    }
    roles |= found;
  }
  return roles;
}

RoleSet NeedOfMethod(absl::string_view path) {
  for (const Need& need : kNeeds) {
    if (absl::StartsWith(path, need.prefix)) return need.roles;
  }
  return kAllRoles;
}

}  // namespace bulkhead
