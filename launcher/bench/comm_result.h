// What `bench comm` measured, as a table and JSON, by the formulas of nccl-tests. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

enum class Collective { kAllReduce, kGather, kAllGather, kBroadcast };
inline constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kGather,
                                              Collective::kAllGather, Collective::kBroadcast};

const char* CollectiveName(Collective collective);

// What algorithm bandwidth is multiplied with, so that the outcome can be held against the speed of
// the hardware whatever the number of ranks: 2 (n-1)/n, (n-1)/n, or 1.
double BusFactor(Collective collective, int ranks);

// One collective at one size. Times in seconds.
struct CommCase {
  Collective collective = Collective::kAllReduce;
  int64_t bytes = 0;    // of the whole message: the sum, what is gathered, what is broadcast
  std::string message;  // what it is in a model: "hidden x 8"; empty: a size among others
  // Of each call the time of the slowest rank.
  std::vector<double> call_s;
  // Likewise of a bare loop of two processes that adds as many bytes; empty where there is none.
  std::vector<double> bare_s;
};

// Two ranks alone with each other: a bare loop of a few bytes, and of many.
struct CommPair {
  int first = 0;
  int second = 0;
  double latency_s = 0;
  double bytes_per_s = 0;
};

struct CommFacts {
  std::string version, date, cpu, model;  // `model` is empty when none was named
  std::vector<std::string> hosts;         // of each rank
  bool may_spin = false;                  // the ranks of a host have a core each
  double shared_core_share = 0;           // of the turns behind which ranks were found on one core
};

// With a bare loop's medians, and ours over theirs, where any case has them.
std::string CommTable(const CommFacts& facts, const std::vector<CommCase>& cases,
                      const std::vector<CommPair>& pairs);
std::string CommJson(const CommFacts& facts, const std::vector<CommCase>& cases,
                     const std::vector<CommPair>& pairs);

}  // namespace bulkhead
