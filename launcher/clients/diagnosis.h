// Diagnosis: from what a group says of itself to what presses on its memory and the one setting to
// change first. Pure: no server, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bulkhead/v1/generation.pb.h"

namespace bulkhead {

// What a live group says of itself at one moment.
struct ServerSnapshot {
  v1::ServerInfo server;
  v1::ModelInfo model;
  v1::RankTable ranks;
  v1::LoadInfo load;
  v1::Limits now;
  v1::Limits sealed;  // what the group was started with
};

struct Finding {
  std::string what;     // that was seen, with its numbers
  std::string setting;  // to change; empty: nothing is to be changed for it
};

// What presses, the most pressing first. A full pool makes requests wait and is never called out of
// memory.
std::vector<Finding> Diagnose(const ServerSnapshot& seen);

// What rank 0's process holds beyond what it held at READY; 0 where that is not known.
struct HostGrowth {
  uint64_t now = 0;
  uint64_t peak = 0;
};
HostGrowth HostGrowthOf(const v1::LoadInfo& load);
// How much of the host budget clients can make it grow by.
uint64_t HostGrowthBytes(const v1::HostBudget& host);

// The five consumers of the binding rank's memory and rank 0's host: bytes, the terms they are made
// of, and, where `live` is given, how they are used now and at the most.
std::string ConsumersTable(const v1::RankTable& ranks, const ServerSnapshot* live);

}  // namespace bulkhead
