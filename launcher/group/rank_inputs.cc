#include "launcher/group/rank_inputs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/digest.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/version.h"
#include "shard/tensor_row.h"

namespace bulkhead {
namespace {

// Hash of the family's tensor table: covers what no config field says.
uint64_t TensorsDigest(const ModelConfig& model) {
  Digest tensors;
  for (const TensorRow& row : AllTensors(model)) {
    tensors.Add(row.Name());
    for (const int64_t number : row.Shape()) tensors.Add(number);
    for (const int64_t number : {row.file_begin, row.file_size}) tensors.Add(number);
    tensors.Add(std::bit_cast<int>(row.value_offset));
    for (const int number :
         {row.slot, static_cast<int>(row.held_as), static_cast<int>(row.output_split),
          static_cast<int>(row.input_split)}) {
      tensors.Add(number);
    }
  }
  return tensors.value();
}

// Every field as a refusal shows it, in the order of comparison; repeated ones have several values.
std::vector<std::vector<std::string>> FieldsOf(const internal::RankInputs& inputs) {
  const auto hex = [](uint64_t digest) { return absl::Hex(digest, absl::kZeroPad16); };
  std::vector<std::string> weights, config;
  for (const internal::RankInputs::Weights& file : inputs.weights()) {
    weights.push_back(absl::StrCat("weights ", file.file(), "=", hex(file.samples())));
  }
  for (const std::string& field : inputs.config()) {
    config.push_back(absl::StrCat("config ", field));
  }
  std::vector<std::vector<std::string>> fields = {
      {absl::StrCat("build=", inputs.build())},
      {absl::StrCat("model=", inputs.headers())},
      std::move(weights),
      std::move(config),
      {absl::StrCat("eos=", absl::StrJoin(inputs.eos_ids(), ","))},
      {absl::StrCat("tensors=", hex(inputs.tensors()))},
      // Last of the common fields: if it differs, later ones are not compared.
      {inputs.has_draft() ? "a draft model" : "no draft model"}};
  if (!inputs.has_draft()) return fields;
  for (std::vector<std::string>& values : FieldsOf(inputs.draft())) {
    for (std::string& value : values) value = absl::StrCat("draft ", value);
    fields.push_back(std::move(values));
  }
  return fields;
}

// "rank 2 (host b), rank 3 (host b)", at most four of them.
std::string NamesOf(const RankTopology& topology, const std::vector<int>& ranks) {
  constexpr size_t kMaxNames = 4;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNames); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", topology.NameOf(ranks[i]));
  }
  if (ranks.size() > kMaxNames) absl::StrAppend(&text, " and ", ranks.size() - kMaxNames, " more");
  return text;
}

// The most common value; rank 0's on a tie.
std::string MajorityOf(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  std::string usual = values[0];
  for (const auto& [value, count] : counts) {
    if (count > counts[usual]) usual = value;
  }
  return usual;
}

// `values`: one field, by rank.
absl::Status CompareValues(const RankTopology& topology, const std::vector<std::string>& values) {
  const std::string usual = MajorityOf(values);
  std::vector<int> odd;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (values[rank] != usual && (odd.empty() || values[rank] == values[odd[0]])) {
      odd.push_back(rank);
    }
  }
  if (odd.empty()) return absl::OkStatus();
  const auto like = std::find(values.begin(), values.end(), usual) - values.begin();
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          NamesOf(topology, odd), odd.size() == 1 ? " has " : " have ",
                          values[odd[0]], " where ", topology.NameOf(static_cast<int>(like)),
                          " has ", usual, "; start every rank with the same program and model")),
                      ExitCode::kGroupNotUp);
}

}  // namespace

absl::StatusOr<internal::RankInputs> RankInputsOf(const ModelSource& source) {
  BH_ASSIGN_OR_RETURN(const std::vector<Checkpoint::FileDigest> files,
                      source.checkpoint->SampleFiles());
  const ParsedConfig& config = source.config;
  internal::RankInputs inputs;
  inputs.set_build(std::string(Version()));
  inputs.set_headers(source.checkpoint->Fingerprint());
  for (const Checkpoint::FileDigest& file : files) {
    internal::RankInputs::Weights& weights = *inputs.add_weights();
    weights.set_file(file.name);
    weights.set_samples(file.digest);
  }
  for (size_t i = 0; i < source.adapters.size(); ++i) {
    const AdapterConfig& adapter = config.model.adapters[i];
    BH_ASSIGN_OR_RETURN(const std::vector<Checkpoint::FileDigest> adapter_files,
                        source.adapters[i]->SampleFiles());
    for (const Checkpoint::FileDigest& file : adapter_files) {
      Digest samples;
      samples.Add(static_cast<int64_t>(file.digest));
      samples.Add(static_cast<int64_t>(source.adapters[i]->Fingerprint()));
      samples.Add(std::bit_cast<int64_t>(adapter.alpha));
      samples.Add(static_cast<int>(adapter.rank_stabilized));
      internal::RankInputs::Weights& weights = *inputs.add_weights();
      weights.set_file(absl::StrCat("of adapter ", adapter.name, " in ", file.name));
      weights.set_samples(samples.value());
    }
  }
  *inputs.mutable_config() = {config.fields.begin(), config.fields.end()};
  inputs.mutable_eos_ids()->Add(config.model.eos_token_ids.begin(),
                                config.model.eos_token_ids.end());
  inputs.set_tensors(TensorsDigest(config.model));
  if (source.draft != nullptr && source.draft->checkpoint != source.checkpoint) {
    BH_ASSIGN_OR_RETURN(*inputs.mutable_draft(), RankInputsOf(*source.draft));
  }
  return inputs;
}

absl::Status CompareInputs(const RankTopology& topology,
                           const std::vector<internal::RankInputs>& ranks) {
  std::vector<std::vector<std::vector<std::string>>> fields;  // by rank
  for (const internal::RankInputs& rank : ranks) fields.push_back(FieldsOf(rank));
  for (size_t field = 0; field < fields[0].size(); ++field) {
    size_t size = 0;
    for (const auto& of_rank : fields) size = std::max(size, of_rank[field].size());
    for (size_t i = 0; i < size; ++i) {
      std::vector<std::string> values;
      for (const auto& of_rank : fields) {
        values.push_back(i < of_rank[field].size() ? of_rank[field][i] : "nothing");
      }
      BH_RETURN_IF_ERROR(CompareValues(topology, values));
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
