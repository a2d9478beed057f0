#include "tests/launcher/planning/random_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

const std::vector<std::string> kRules = {"--gpu-memory-utilization", "--cache-max-entry-count",
                                         "--kv-cache-bytes"};

std::string ConfigFolder(const char* name, int width, int mlp, int layers, int heads, int kv_heads,
                         int head_dim, int vocab, int length,
                         const char* family = R"("LlamaForCausalLM"], "model_type": "llama")") {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / absl::StrCat("plans_", name);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << absl::StrFormat(
      R"({"architectures": [%s, "torch_dtype": "bfloat16",
          "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "eos_token_id": 1,
          "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
          "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d,
          "max_position_embeddings": %d})",
      family, width, mlp, layers, heads, kv_heads, head_dim, vocab, length);
  return folder.string();
}

}  // namespace

std::vector<std::string> ModelsForCpus() {
  static const std::vector<std::string> folders = {
      BH_SOURCE_DIR "/examples/models/sample",
      ConfigFolder("one_kv_head", 128, 256, 4, 8, 1, 64, 1000, 8192),
      ConfigFolder("uneven", 192, 640, 3, 6, 3, 32, 3001, 1024),
      ConfigFolder("windows", 128, 256, 8, 8, 2, 64, 1000, 8192,
                   R"("Exaone4ForCausalLM"], "model_type": "exaone4", "sliding_window": 256,
                      "sliding_window_pattern": 4)")};
  return folders;
}

std::vector<std::string> ModelsForGpus() {
  static const std::vector<std::string> folders = {
      ConfigFolder("8b", 4096, 14336, 32, 32, 8, 128, 128256, 131072),
      ConfigFolder("70b", 8192, 28672, 80, 64, 8, 128, 128256, 131072)};
  return folders;
}

std::vector<std::string> ArgsOf(const PlanFlags& flags) {
  std::vector<std::string> args = {"plan"};
  for (const auto& [name, value] : flags) args.insert(args.end(), {name, value});
  return args;
}

std::string TextOf(const PlanFlags& flags) { return absl::StrJoin(ArgsOf(flags), " "); }

PlanFlags Applied(PlanFlags flags, const std::vector<std::string>& remedy) {
  for (size_t i = 0; i + 1 < remedy.size(); i += 2) {
    const bool rule = std::find(kRules.begin(), kRules.end(), remedy[i]) != kRules.end();
    for (const std::string& name : kRules) {
      if (rule) flags.erase(name);
    }
    flags[remedy[i]] = remedy[i + 1];
  }
  return flags;
}

int RanksOf(const PlanFlags& flags) { return std::stoi(flags.at("--tensor-parallel-size")); }

std::vector<std::string> ValuesByRank(const PlanFlags& flags, const std::string& name, int ranks) {
  const auto found = flags.find(name);
  if (found == flags.end()) return {};
  if (!absl::StrContains(found->second, '=')) return std::vector<std::string>(ranks, found->second);
  std::vector<std::string> values;
  for (const absl::string_view part : absl::StrSplit(found->second, ',')) {
    values.emplace_back(part.substr(part.find('=') + 1));
  }
  return values;
}

std::string ListByRank(const std::vector<std::string>& values) {
  std::string list;
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ",", i, "=", values[i]);
  }
  return list;
}

std::string RandomPlans::OneOf(const std::vector<std::string>& values) {
  return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_)];
}

int64_t RandomPlans::Between(double low, double high) {
  return static_cast<int64_t>(
      low * std::pow(high / low, std::uniform_real_distribution<>(0, 1)(random_)));
}

void RandomPlans::AddMemory(PlanFlags& flags, int ranks, double low, double high) {
  std::vector<std::string> caps(ranks, absl::StrCat(Between(low, high)));
  const bool unequal = ranks > 1 && Chance(0.5);
  for (std::string& cap : caps) {
    if (unequal) cap = absl::StrCat(Between(low, high));
  }
  flags["--device-memory"] = unequal ? ListByRank(caps) : caps[0];
  if (!Chance(0.3)) return;
  std::vector<std::string> reserves;
  for (const std::string& cap : caps) {
    reserves.push_back(absl::StrCat(Between(1000, 0.9 * std::stod(cap))));
  }
  flags["--reserve"] = Chance(0.4) ? ListByRank(reserves) : reserves[0];
}

void RandomPlans::AddRule(PlanFlags& flags) {
  if (Chance(0.3)) return;
  switch (std::uniform_int_distribution<>(0, 3)(random_)) {
    case 0:
      flags["--gpu-memory-utilization"] = OneOf({"0.05", "0.3", "0.6", "0.85", "0.95", "0.333"});
      break;
    case 1:
      flags["--cache-max-entry-count"] = OneOf({"0.01", "0.2", "0.5", "0.8", "0.97", "1.0"});
      break;
    case 2:
      flags["--cache-max-entry-count"] = absl::StrCat(Between(1, 5000));
      break;
    default:
      flags["--kv-cache-bytes"] = absl::StrCat(Between(1e4, 3e8));
  }
}

void RandomPlans::AddLimits(PlanFlags& flags, const std::vector<std::string>& lengths) {
  if (Chance(0.6)) flags["--max-model-len"] = OneOf(lengths);
  if (Chance(0.5)) flags["--max-num-seqs"] = OneOf({"1", "4", "16", "64", "64", "20000"});
  if (Chance(0.5))
    flags["--max-num-batched-tokens"] = OneOf({"16", "64", "256", "512", "2048", "20000"});
  if (Chance(0.2)) flags["--block-size"] = OneOf({"32", "64", "256"});
  if (Chance(0.4)) {
    flags["--kv-cache-dtype"] = OneOf({"bf16", "int8", "int4"});
  } else if (Chance(0.2)) {
    flags["--quant-policy"] = OneOf({"0", "4", "8"});
  }
  if (Chance(0.2)) flags["--weight-dtype"] = OneOf({"int8", "int4"});
}

// The model itself, which takes as much as it.
void RandomPlans::AddDraftModel(PlanFlags& flags) {
  if (Chance(0.8)) return;
  flags["--speculative-config"] =
      absl::StrCat(R"({"model": ")", flags["--model"], R"(", "num_speculative_tokens": 3})");
}

// Often too little for clients.
void RandomPlans::AddHost(PlanFlags& flags) {
  if (Chance(0.4)) flags["--host-memory"] = absl::StrCat(Between(1e7, 1e9));
  if (Chance(0.2)) flags["--max-num-queued-reqs"] = OneOf({"1", "40", "300", "5000", "1000000"});
}

PlanFlags RandomPlans::ForCpus() {
  const int ranks = std::stoi(OneOf({"1", "1", "2", "2", "3", "4", "8"}));
  PlanFlags flags = {{"--model", OneOf(ModelsForCpus())},
                     {"--tensor-parallel-size", absl::StrCat(ranks)},
                     {"--device", "cpu"}};
  AddMemory(flags, ranks, 8e6 / ranks + 1e6, 1e9 / ranks);
  AddLimits(flags, {"2", "16", "64", "512", "1000", "1024"});
  AddRule(flags);
  AddDraftModel(flags);
  if (ranks > 1 && Chance(0.3)) flags["--tp-shares"] = "auto";
  if (ranks == 2 && Chance(0.1)) flags["--tp-shares"] = "2,1";
  return flags;
}

PlanFlags RandomPlans::ForGpus() {
  PlanFlags flags = {{"--model", OneOf(ModelsForGpus())},
                     {"--tensor-parallel-size", OneOf({"1", "2", "4", "8"})},
                     {"--gpu", OneOf({"a100-40", "h100", "h200", "l4"})}};
  AddLimits(flags, {"4096", "32768", "131072"});
  AddRule(flags);
  if (Chance(0.2)) flags["--reserve"] = OneOf({"1GiB", "20GiB", "0"});
  return flags;
}

PlanFlags RandomPlans::NextMeasured() {
  const int ranks = std::stoi(OneOf({"1", "2", "4", "8"}));
  PlanFlags flags = {{"--model", OneOf(ModelsForCpus())},
                     {"--tensor-parallel-size", absl::StrCat(ranks)},
                     {"--device", "cpu"}};
  AddLimits(flags, {"16", "512", "1000"});
  AddRule(flags);
  AddDraftModel(flags);
  if (Chance(0.6)) flags["--reserve"] = OneOf({"0", "1MiB", "100MiB", "900TiB"});
  AddHost(flags);
  if (ranks > 1 && Chance(0.3)) flags["--nodes"] = "2";
  if (ranks > 1 && Chance(0.2)) flags["--tp-shares"] = "auto";
  return flags;
}

PlanFlags RandomPlans::Next() {
  PlanFlags flags = Chance(0.2) ? ForGpus() : ForCpus();
  AddHost(flags);
  return flags;
}

namespace {

void AddSmaller(const PlanFlags& flags, const char* name, int least, Grid grid,
                std::vector<PlanFlags>& all) {
  int now = 1 << 20;
  if (const auto given = flags.find(name); given != flags.end()) now = std::stoi(given->second);
  const std::vector<int> values = grid == Grid::kCoarse
                                      ? std::vector<int>{least, 64}
                                      : std::vector<int>{least, 3, 16, 50, 64, 200, 512, 4096};
  for (const int value : values) {
    if (value < now) all.push_back(Applied(flags, {name, absl::StrCat(value)}));
  }
}

void AddRules(const PlanFlags& flags, Grid grid, std::vector<PlanFlags>& all) {
  const bool has_rule = std::any_of(kRules.begin(), kRules.end(),
                                    [&](const std::string& rule) { return flags.contains(rule); });
  if (!has_rule) return;
  std::vector<std::string> counts = {"1", "4", "64"};
  if (grid == Grid::kFine) {
    counts = {"0.02", "0.10", "0.40", "1", "2", "4", "16", "64", "256", "2048"};
  }
  for (const std::string& count : counts) {
    all.push_back(Applied(flags, {"--cache-max-entry-count", count}));
  }
  if (!flags.contains("--gpu-memory-utilization")) return;
  for (const char* share : {"1.00", "0.90", "0.70", "0.40", "0.10"}) {
    all.push_back(Applied(flags, {"--gpu-memory-utilization", share}));
    if (grid == Grid::kCoarse) return;
  }
}

void AddGroups(const PlanFlags& flags, Grid grid, std::vector<PlanFlags>& all) {
  const int now = RanksOf(flags);
  const std::vector<int> sizes = grid == Grid::kCoarse ? std::vector<int>{1, 2, 8, 64}
                                                       : std::vector<int>{1, 2, 4, 8, 16, 32, 64};
  for (const int ranks : sizes) {
    if (ranks == now) continue;
    PlanFlags changed = Applied(flags, {"--tensor-parallel-size", absl::StrCat(ranks)});
    for (const char* name : {"--device-memory", "--reserve"}) {
      std::vector<std::string> values = ValuesByRank(flags, name, now);
      if (values.empty()) continue;
      // New ranks have the smallest memory of any rank, and the largest reserve.
      const auto [least, most] = std::minmax_element(
          values.begin(), values.end(),
          [](const std::string& a, const std::string& b) { return std::stoll(a) < std::stoll(b); });
      values.resize(ranks, name == std::string("--reserve") ? *most : *least);
      if (absl::StrContains(flags.at(name), '=')) changed[name] = ListByRank(values);
    }
    all.push_back(changed);
  }
}

}  // namespace

std::vector<PlanFlags> SingleChanges(const PlanFlags& flags, Grid grid) {
  std::vector<PlanFlags> all;
  AddSmaller(flags, "--max-num-seqs", 1, grid, all);
  AddSmaller(flags, "--max-model-len", 2, grid, all);
  AddSmaller(flags, "--max-num-batched-tokens", 1, grid, all);
  AddRules(flags, grid, all);
  for (const char* type : {"int8", "int4"}) {
    all.push_back(Applied(flags, {"--kv-cache-dtype", type}));
    if (flags.contains("--quant-policy")) all.back().erase("--quant-policy");
    all.push_back(Applied(flags, {"--weight-dtype", type}));
  }
  if (RanksOf(flags) > 1) all.push_back(Applied(flags, {"--tp-shares", "auto"}));
  all.push_back(Applied(flags, {"--block-size", "16"}));
  if (flags.contains("--speculative-config")) {
    all.push_back(Applied(flags, {"--speculative-config", "null"}));
  }
  if (flags.contains("--reserve") || flags.contains("--gpu")) {
    all.push_back(Applied(flags, {"--reserve", "0"}));
  }
  if (flags.contains("--host-memory")) {
    all.push_back(Applied(flags, {"--host-memory", kPlentyHostMemory}));
  }
  if (flags.contains("--max-num-queued-reqs")) {
    AddSmaller(flags, "--max-num-queued-reqs", 1, grid, all);
  }
  AddGroups(flags, grid, all);
  return all;
}

}  // namespace bulkhead
