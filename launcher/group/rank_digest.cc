#include "launcher/group/rank_digest.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/digest.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/version.h"
#include "shard/tensor_row.h"

namespace bulkhead {
namespace {

// "\nconfig FIELD=value" of every field that was read, and what became of the end-of-sequence ids
// of both files and of the family's table of tensors.
std::string ModelLines(const ParsedConfig& config) {
  std::string lines;
  for (const std::string& field : config.fields) absl::StrAppend(&lines, "\nconfig ", field);
  Digest tensors;
  for (const TensorRow& row : AllTensors(config.model)) {
    tensors.Add(row.Name());
    for (const int64_t number : row.Shape()) tensors.Add(number);
    for (const int number :
         {row.slot, static_cast<int>(row.held_as), static_cast<int>(row.output_split),
          static_cast<int>(row.input_split)}) {
      tensors.Add(number);
    }
  }
  return absl::StrCat(lines, "\neos=", absl::StrJoin(config.model.eos_token_ids, ","),
                      "\ntensors=", absl::Hex(tensors.value(), absl::kZeroPad16));
}

// "weights FILE=digest" lines.
absl::StatusOr<std::string> WeightLines(const Checkpoint& checkpoint) {
  BH_ASSIGN_OR_RETURN(const std::vector<Checkpoint::FileDigest> files, checkpoint.SampleFiles());
  std::string lines;
  for (const Checkpoint::FileDigest& file : files) {
    absl::StrAppend(&lines, "\nweights ", file.name, "=", absl::Hex(file.digest, absl::kZeroPad16));
  }
  return lines;
}

// "rank 2 (host b), rank 3 (host b)", at most four of them.
std::string NamesOf(const RankTopology& topology, const std::vector<int>& ranks) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", topology.NameOf(ranks[i]));
  }
  if (ranks.size() > kMost) absl::StrAppend(&text, " and ", ranks.size() - kMost, " more");
  return text;
}

// The most common line; rank 0's on a tie.
std::string MajorityLine(const std::vector<std::string>& lines) {
  std::map<std::string, int> counts;
  for (const std::string& line : lines) ++counts[line];
  std::string usual = lines[0];
  for (const auto& [line, count] : counts) {
    if (count > counts[usual]) usual = line;
  }
  return usual;
}

}  // namespace

absl::StatusOr<std::string> RankDigest(const ModelSource& source) {
  BH_ASSIGN_OR_RETURN(const std::string weights, WeightLines(*source.checkpoint));
  return absl::StrCat("build=", Version(), "\nmodel=", source.checkpoint->Fingerprint(), weights,
                      ModelLines(source.config));
}

absl::Status CompareDigests(const RankTopology& topology, const std::vector<std::string>& digests) {
  std::vector<std::vector<std::string>> lines;
  size_t keys = 0;
  for (const std::string& digest : digests) {
    lines.push_back(absl::StrSplit(digest, '\n'));
    keys = std::max(keys, lines.back().size());
  }
  for (size_t key = 0; key < keys; ++key) {
    std::vector<std::string> values;  // by rank
    for (const auto& of_rank : lines) {
      values.push_back(key < of_rank.size() ? of_rank[key] : "nothing");
    }
    const std::string usual = MajorityLine(values);
    std::vector<int> odd;
    for (int rank = 0; rank < topology.size; ++rank) {
      if (values[rank] != usual && (odd.empty() || values[rank] == values[odd[0]])) {
        odd.push_back(rank);
      }
    }
    if (odd.empty()) continue;
    const auto like = std::find(values.begin(), values.end(), usual) - values.begin();
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            NamesOf(topology, odd), odd.size() == 1 ? " has " : " have ",
                            values[odd[0]], " where ", topology.NameOf(static_cast<int>(like)),
                            " has ", usual, "; start every rank with the same program and model")),
                        ExitCode::kGroupNotUp);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
