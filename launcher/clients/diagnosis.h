// Diagnosis: from what a group says of itself to what presses on its memory and the one setting to
// change first. Pure: no server, no clock.
#pragma once

#include <string>
#include <vector>

#include "bulkhead/v1/generation.pb.h"

namespace bulkhead {

// What a live group says of itself at one moment.
struct Examination {
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
std::vector<Finding> Diagnose(const Examination& seen);

// The five consumers of the binding rank's memory: bytes, the terms they are made of, and, where
// `live` is given, how they are used now and at the most.
std::string ConsumersTable(const v1::RankTable& ranks, const Examination* live);

}  // namespace bulkhead
