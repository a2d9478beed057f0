#include "launcher/group/rank_digest.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/version.h"
#include "memory/exit_code.h"
#include "memory/kv_format_name.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// What the checkpoint's shapes do not tell.
std::string ConfigDigest(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::string digest =
      absl::StrCat(config.architecture, " eps ", config.rms_norm_eps, " rope ", rope.theta, " ",
                   static_cast<int>(rope.scaling), " ", rope.factor, " ", rope.low_freq_factor, " ",
                   rope.high_freq_factor, " ", rope.original_max_position_embeddings, " window ",
                   config.sliding_window, " tied ", config.tie_word_embeddings, " heads ",
                   config.num_attention_heads, " ", config.num_key_value_heads, " eos ",
                   absl::StrJoin(config.eos_token_ids, ","), " windows ");
  for (int i = 0; i < config.num_hidden_layers; ++i) digest += config.UsesWindow(i) ? '1' : '0';
  return digest;
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

std::string LimitText(const std::optional<int>& limit) {
  return limit.has_value() ? absl::StrCat(*limit) : "auto";
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

// What most ranks have; rank 0's when it is as many as any.
std::string UsualLine(const std::vector<std::string>& lines) {
  std::map<std::string, int> counts;
  for (const std::string& line : lines) ++counts[line];
  std::string usual = lines[0];
  for (const auto& [line, count] : counts) {
    if (count > counts[usual]) usual = line;
  }
  return usual;
}

}  // namespace

absl::StatusOr<std::string> RankDigest(const EngineOptions& options, const ModelSource& source) {
  const ModelLimits& formats = source.formats;
  const KvRule& rule = options.kv_rule;
  BH_ASSIGN_OR_RETURN(const std::string weights, WeightLines(*source.checkpoint));
  return absl::StrCat(
      "build=", Version(), "\nmodel=", source.checkpoint->Fingerprint(), weights,
      "\nconfig=", ConfigDigest(source.config.model),
      "\ndtype=", WeightFormatsText(formats.weights), " ", static_cast<int>(formats.activation),
      "\nkv-cache-dtype=", KvFormatName(formats.kv_format), "\nblock-size=", formats.block_tokens,
      "\ntp-shares=", options.tp_shares_auto ? "auto" : absl::StrJoin(options.tp_shares, ","),
      "\nmax-num-seqs=", LimitText(options.max_num_seqs),
      "\nmax-model-len=", LimitText(options.max_model_len),
      "\nmax-num-batched-tokens=", LimitText(options.max_num_batched_tokens),
      "\nkv-rule=", static_cast<int>(rule.kind), " ", rule.fraction, " ", rule.count);
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
    const std::string usual = UsualLine(values);
    std::vector<int> odd;
    for (int rank = 0; rank < topology.size; ++rank) {
      if (values[rank] != usual && (odd.empty() || values[rank] == values[odd[0]])) {
        odd.push_back(rank);
      }
    }
    if (odd.empty()) continue;
    const auto like = std::find(values.begin(), values.end(), usual) - values.begin();
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            NamesOf(topology, odd), odd.size() == 1 ? " has " : " have ", values[odd[0]], " where ",
            topology.NameOf(static_cast<int>(like)), " has ", usual,
            "; start every rank with the same program, model and flags")),
        ExitCode::kGroupNotUp);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
