// Diagnosis: from a group's metrics to what limits it and the one setting to change first. Pure: no
// server, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bulkhead/v1/generation.pb.h"

namespace bulkhead {

// The state of a live group at one moment.
struct ServerSnapshot {
  v1::ServerInfo server;
  v1::ModelInfo model;
  v1::RankTable ranks;
  v1::LoadInfo load;
  v1::Limits now;
  v1::Limits sealed;  // the limits at start
};

struct Finding {
  std::string what;     // the observation, with its numbers
  std::string setting;  // what to change; empty: nothing
};

// The findings, most important first. A full pool makes requests wait and is not reported as out of
// memory.
std::vector<Finding> Diagnose(const ServerSnapshot& seen);

// Growth of rank 0's process since READY; 0 if unknown.
struct HostGrowth {
  uint64_t now = 0;
  uint64_t peak = 0;
};
HostGrowth HostGrowthOf(const v1::LoadInfo& load);

// Whether limits, not a rank's memory, determine the KV cache's size: more memory is unused.
bool HoldsAllSequences(const v1::RankTable& ranks);
// The part of the host budget by which clients can make the process grow.
uint64_t HostGrowthBytes(const v1::HostBudget& host);

// The five consumers of memory on the binding rank and rank 0's host: bytes, their categories and,
// given `live`, current and peak use.
std::string ConsumersTable(const v1::RankTable& ranks, const ServerSnapshot* live);

}  // namespace bulkhead
