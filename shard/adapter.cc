#include "shard/adapter.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "shard/config_fields.h"
#include "shard/family_spec.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/tensor_index.h"
#include "shard/tensor_row.h"

namespace bulkhead {
namespace {

constexpr char kA[] = ".lora_A.weight";
constexpr char kB[] = ".lora_B.weight";
constexpr char kConfigFile[] = "/adapter_config.json";

// A slot and a module, which has one row there or several: parts of a fused module, or heads.
using OutputsOfModule = std::pair<int, std::string>;

// The name of an adapter's module: "layers.3.self_attn.q_proj".
std::string NameOf(const TensorRow& row) {
  return absl::StrCat("layers.", row.layer, ".", row.name);
}

TensorRow PartOf(const TensorRow& module, const char* field) {
  TensorRow row = module;
  row.prefix = row.model_prefix = "";
  row.field = field;
  row.shared_name.clear();
  row.held_as = HeldAs::kAdapterMatrix;
  return row;
}

TensorRow InnerOf(const TensorRow& module, int rank) {
  TensorRow row = PartOf(module, kA);
  row.rows = rank;
  row.output_split = Split::kWhole;
  row.file_begin = row.file_size = 0;
  return row;
}

TensorRow OuterOf(const TensorRow& module, int rank) {
  TensorRow row = PartOf(module, kB);
  row.cols = rank;
  row.input_split = Split::kWhole;
  return row;
}

// `rank_of_all`: 0 if modules have different ranks.
absl::Status ReadFields(const std::string& path, AdapterConfig& adapter, int& rank_of_all) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxAdapterConfigBytes));
  BH_ASSIGN_OR_RETURN(nlohmann::json json, ParseJsonObject(text, path));
  ConfigFields fields(std::move(json), path);
  if (fields.String("peft_type").value_or("LORA") != "LORA") {
    fields.Unsupported("peft_type", "LORA alone is");
  }
  rank_of_all = fields.RequiredInt("r", 1, kMaxAdapterRank);
  adapter.alpha = fields.RequiredNumber("lora_alpha", -1e6, 1e6);
  adapter.rank_stabilized = fields.Bool("use_rslora").value_or(false);
  if (fields.String("bias").value_or("none") != "none") {
    fields.Unsupported("bias", "none alone is");
  }
  if (fields.ValueUnlessOff("rank_pattern").has_value()) rank_of_all = 0;
  // Other values subtract a part from the model's weight, which then differs from the checkpoint.
  const std::string init = fields.ValueUnlessOff("init_lora_weights").value_or("true");
  if (init != "true" && init != "\"gaussian\"" && init != "\"orthogonal\"" && init != "\"eva\"") {
    fields.Unsupported("init_lora_weights",
                       "save the adapter with path_initial_model_for_weight_conversion");
  }
  for (const char* name :
       {"use_dora", "use_qalora", "lora_bias", "modules_to_save", "fan_in_fan_out", "alpha_pattern",
        "layer_replication", "trainable_token_indices", "target_parameters", "use_bdlora",
        "alora_invocation_tokens", "arrow_config"}) {
    fields.RefuseUnlessOff(name);
  }
  // The tensors say which modules are changed.
  for (const char* name : {"auto_mapping",
                           "base_model_name_or_path",
                           "corda_config",
                           "ensure_weight_tying",
                           "eva_config",
                           "exclude_modules",
                           "inference_mode",
                           "layers_pattern",
                           "layers_to_transform",
                           "loftq_config",
                           "lora_dropout",
                           "lora_ga_config",
                           "megatron_config",
                           "megatron_core",
                           "peft_version",
                           "qalora_group_size",
                           "revision",
                           "runtime_config",
                           "target_modules",
                           "task_type"}) {
    fields.Ignore(name);
  }
  adapter.unknown_fields = fields.UnknownNames();
  return fields.status();
}

// The rank of the module's A in the file; 0 if it has neither A nor B.
absl::StatusOr<int> RankOf(const TensorIndex& index, const TensorRow& row, int least, int most) {
  const std::string module = NameOf(row);
  const LocatedTensor* const found = index.FindAny(module + kA);
  if (found == nullptr && index.FindAny(module + kB) == nullptr) return 0;
  if (found == nullptr) return index.Find(InnerOf(row, least)).status();
  const std::vector<int64_t>& shape = found->entry->shape;
  if (shape.size() == 2 && shape[0] >= least && shape[0] <= most) {
    return static_cast<int>(shape[0]);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      found->file->path(), ": tensor '", module, kA, "' has ", shape.size(), " dimensions and ",
      shape.empty() ? 0 : shape[0], " rows; it needs two, and ",
      least == most ? absl::StrCat("r = ", least) : absl::StrCat("from 1 to ", most), " rows"));
}

// Whether the tensor belongs to a part that is not served (image towers, for example).
bool IsNotServed(const std::string& name, const ModelConfig& model) {
  for (const absl::string_view text :
       absl::StrSplit(model.family->not_served, ',', absl::SkipEmpty())) {
    const std::string pattern(AdapterTensorName(text));
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

absl::Status ReadModules(const TensorIndex& index, const ModelConfig& model,
                         absl::Span<const std::vector<TensorRow>> layers, int rank_of_all,
                         AdapterConfig& adapter) {
  // Sums over ranks are sized for the residual stream.
  int most_rank = std::min(kMaxAdapterRank, model.hidden_size);
  if (rank_of_all > 0) most_rank = std::min(most_rank, rank_of_all);
  std::set<std::string> known;
  std::set<std::string> modules;  // without their layers, for the message
  auto tensors = std::make_shared<std::vector<std::vector<TensorRow>>>();
  for (const std::vector<TensorRow>& layer : layers) {
    std::vector<TensorRow>& parts = tensors->emplace_back();
    std::map<int, int64_t> inner;                              // by slot
    std::map<OutputsOfModule, std::pair<int, int64_t>> outer;  // B's slot and outputs
    for (const TensorRow& row : layer) {
      modules.insert(row.name);
      BH_ASSIGN_OR_RETURN(const int rank, RankOf(index, row, std::max(1, rank_of_all), most_rank));
      if (rank == 0) continue;
      BH_RETURN_IF_ERROR(index.Find(InnerOf(row, rank)).status());
      BH_RETURN_IF_ERROR(index.Find(OuterOf(row, rank)).status());
      known.insert({NameOf(row) + kA, NameOf(row) + kB});
      adapter.rank[NameOf(row)] = rank;
      BH_CHECK(row.slot < kOuterSlots);
      const int next_slot = kOuterSlots + static_cast<int>(outer.size());
      const auto [at, is_first] = outer.try_emplace({row.slot, row.name}, next_slot, 0);
      if (is_first) {
        parts.push_back(InnerOf(row, rank));
        adapter.most.inner = std::max(adapter.most.inner, inner[row.slot] += rank);
      }
      parts.push_back(OuterOf(row, rank));
      parts.back().slot = at->second.first;
      adapter.most.outputs = std::max(adapter.most.outputs, at->second.second += row.rows);
    }
  }
  adapter.tensors = std::move(tensors);
  for (const auto& file : index.files()) {
    for (const TensorEntry& tensor : file->tensors()) {
      const std::string name(AdapterTensorName(tensor.name));
      if (known.contains(name) || IsNotServed(name, model)) continue;
      return absl::UnimplementedError(absl::StrCat(
          file->file().path(), ": tensor '", tensor.name, "' changes nothing that an adapter of a ",
          model.architecture, " of ", model.num_hidden_layers, " layers can: lora_A and lora_B of ",
          absl::StrJoin(modules, ", ")));
    }
  }
  if (!adapter.rank.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(adapter.dir, ": the adapter has no tensors of the layers"));
}

}  // namespace

LowRankShape MostOf(absl::Span<const AdapterConfig> adapters) {
  LowRankShape most;
  for (const AdapterConfig& adapter : adapters) {
    most.inner = std::max(most.inner, adapter.most.inner);
    most.outputs = std::max(most.outputs, adapter.most.outputs);
  }
  return most;
}

bool IsAdaptable(const TensorRow& row) {
  return (row.held_as == HeldAs::kLayerMatrix || row.held_as == HeldAs::kKeptMatrix ||
          row.held_as == HeldAs::kDequantized) &&
         row.layer >= 0 && row.expert < 0 && (row.head < 0 || row.joins_heads) && !row.optional;
}

std::vector<std::vector<TensorRow>> AdaptableRows(const ModelConfig& model) {
  std::vector<std::vector<TensorRow>> layers;
  for (int layer = 0; layer < model.num_hidden_layers; ++layer) {
    std::vector<TensorRow>& rows = layers.emplace_back(LayerTensors(model, layer));
    std::erase_if(rows, [](const TensorRow& row) { return !IsAdaptable(row); });
  }
  return layers;
}

float AdapterConfig::ScaleOf(int module_rank) const {
  return static_cast<float>(alpha / (rank_stabilized ? std::sqrt(module_rank) : module_rank));
}

absl::StatusOr<AdapterConfig> ReadAdapter(const std::string& name, const std::string& dir,
                                          const ModelConfig& model,
                                          absl::Span<const std::vector<TensorRow>> layers) {
  AdapterConfig adapter;
  adapter.name = name;
  adapter.dir = dir;
  const auto read = [&]() -> absl::Status {
    // The two halves of such a layer are normed separately before they are added.
    if (model.moe.beside_mlp) {
      return absl::UnimplementedError(
          "adapters of models with experts beside an MLP are not "
          "supported; merge them into the checkpoint");
    }
    int rank_of_all = 0;
    BH_RETURN_IF_ERROR(ReadFields(dir + kConfigFile, adapter, rank_of_all));
    BH_ASSIGN_OR_RETURN(const TensorIndex index, TensorIndex::OpenAdapter(dir));
    return ReadModules(index, model, layers, rank_of_all, adapter);
  };
  const absl::Status status = read();
  if (status.ok()) return adapter;
  return WithExitCode(
      absl::Status(status.code(), absl::StrCat("adapter '", name, "': ", status.message())),
      ExitCode::kModelRefused);
}

const std::vector<TensorRow>& AdapterTensors(const AdapterConfig& adapter, int layer) {
  return (*adapter.tensors)[layer];
}

std::vector<AdapterModule> AdapterModules(const AdapterConfig& adapter, const RankShard& shard,
                                          absl::Span<const TensorRow> rows) {
  std::vector<AdapterModule> modules;
  std::set<OutputsOfModule> seen;
  std::map<int, int64_t> outputs;  // by slot, so far
  std::map<int, int64_t> inner;
  for (const TensorRow& row : rows) {
    if (row.is_vector() || row.optional) continue;
    const auto rank = adapter.rank.find(NameOf(row));
    if (IsAdaptable(row) && rank != adapter.rank.end() &&
        seen.insert({row.slot, row.name}).second) {
      modules.push_back({row.slot, outputs[row.slot], inner[row.slot], rank->second});
      inner[row.slot] += rank->second;
    }
    outputs[row.slot] += SliceOf(row, shard).rows.size();
  }
  return modules;
}

}  // namespace bulkhead
