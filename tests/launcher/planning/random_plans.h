// Random command lines of `plan`, and the application of a remedy to one.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

namespace bulkhead {

// Flag -> value; the command is `plan`.
using PlanFlags = std::map<std::string, std::string>;

std::vector<std::string> ArgsOf(const PlanFlags& flags);
std::string TextOf(const PlanFlags& flags);

// `flags` replace those with the same name, a KV rule replaces the other KV rules.
PlanFlags Applied(PlanFlags flags, const std::vector<std::string>& remedy);

// "0=4,1=5" -> {4, 5}; "4" -> {4, 4} for two ranks; empty without the flag.
std::vector<std::string> ValuesByRank(const PlanFlags& flags, const std::string& name, int ranks);
// {4, 5} -> "0=4,1=5"
std::string ListByRank(const std::vector<std::string>& values);
int RanksOf(const PlanFlags& flags);

// Folders with a config.json: the sample's shape and others.
std::vector<std::string> ModelsForCpus();
std::vector<std::string> ModelsForGpus();

class RandomPlans {
 public:
  explicit RandomPlans(uint32_t seed) : random_(seed) {}
  PlanFlags Next();
  // For CPUs with this machine's memory, part of which is for clients.
  PlanFlags NextMeasured();

 private:
  bool Chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  std::string OneOf(const std::vector<std::string>& values);
  // Uniform in the logarithm.
  int64_t Between(double low, double high);
  void AddMemory(PlanFlags& flags, int ranks, double low, double high);
  void AddRule(PlanFlags& flags);
  void AddHost(PlanFlags& flags);
  void AddDraftModel(PlanFlags& flags);
  void AddLimits(PlanFlags& flags, const std::vector<std::string>& lengths);
  PlanFlags ForCpus();
  PlanFlags ForGpus();

  std::mt19937 random_;
};

inline constexpr char kPlentyHostMemory[] = "512GiB";

// Possible changes: single changes of all flags, a few values each; coarse has even fewer, but
// always the most drastic ones.
enum class Grid { kFine, kCoarse };
std::vector<PlanFlags> SingleChanges(const PlanFlags& flags, Grid grid);

}  // namespace bulkhead
