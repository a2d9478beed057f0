// The flags of every command that loads or plans a model, grouped as in the help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

inline constexpr int kMaxRanks = 1024;

// Intermediate result, completed once all flags are parsed.
struct RawEngineFlags {
  EngineOptions options;
  // At most one of them.
  std::optional<double> gpu_memory_utilization;
  std::optional<KvRule> cache_max_entry_count;
  std::optional<int64_t> kv_cache_bytes;
  std::optional<KvFormat> quant_policy;
};

// Each declares one group; `raw` outlives the parse.
void AddModelFlags(RawEngineFlags* raw, Flags* flags);
void AddDeviceFlags(RawEngineFlags* raw, Flags* flags);
void AddLogFlags(Flags* flags);
void AddLimitFlags(RawEngineFlags* raw, Flags* flags);
void AddSchedulingFlags(RawEngineFlags* raw, Flags* flags);
void AddTimeFlags(RawEngineFlags* raw, Flags* flags);
// Declares all groups.
void AddEngineFlags(RawEngineFlags* raw, Flags* flags);

// The final options, after flags.Parse, with everything that depends on several flags.
// INVALID_ARGUMENT for an invalid combination. `served_model_names`: values of --served-model-name.
absl::StatusOr<EngineOptions> CompleteEngine(
    const RawEngineFlags& raw, const Flags& flags,
    const std::vector<std::string>& served_model_names = {});

}  // namespace bulkhead
