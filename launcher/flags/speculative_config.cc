#include "launcher/flags/speculative_config.h"

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr char kTokens[] = "num_speculative_tokens";
constexpr char kLookupMax[] = "prompt_lookup_max";
constexpr char kLookupMin[] = "prompt_lookup_min";
constexpr char kModel[] = "model";
constexpr const char* kKeys[] = {"method", kModel, kTokens, kLookupMax, kLookupMin};
constexpr char kNgram[] = "ngram";
constexpr char kDraftModel[] = "draft_model";
constexpr char kMtp[] = "mtp";
constexpr int kDefaultLookup = 5;

absl::StatusOr<std::optional<int>> Number(const nlohmann::json& config, const char* key, int max) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  if (found->is_number_integer()) {
    const bool too_large = found->is_number_unsigned() && found->get<uint64_t>() > uint64_t(max);
    const auto value = too_large ? int64_t{0} : found->get<int64_t>();
    if (value >= 1 && value <= max) return static_cast<int>(value);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": ", JsonExcerpt(*found), " is not a whole number from 1 to ", max));
}

absl::Status CheckKeys(const nlohmann::json& config, const std::string& method) {
  for (const auto& [key, value] : config.items()) {
    if (absl::c_find(kKeys, key) == std::end(kKeys)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key '", key, "'; known are ", absl::StrJoin(kKeys, ", ")));
    }
    const bool is_lookup = key == kLookupMax || key == kLookupMin;
    if ((is_lookup && method != kNgram) || (key == kModel && method != kDraftModel)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": not for the method ", method, "; leave it out"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MethodOf(const nlohmann::json& config) {
  const auto method = config.find("method");
  if (method == config.end() && config.contains(kModel)) return kDraftModel;
  if (method != config.end()) {
    for (const char* name : {kNgram, kDraftModel, kMtp}) {
      if (*method == name) return name;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "method: ", method == config.end() ? "missing" : JsonExcerpt(*method), "; supported are \"",
      kNgram, "\", \"", kDraftModel, "\" and \"", kMtp, "\" (multi-token prediction)"));
}

absl::Status SetLookup(const nlohmann::json& config, DraftOptions& drafts) {
  BH_ASSIGN_OR_RETURN(const std::optional<int> most, Number(config, kLookupMax, kMaxLookupTokens));
  BH_ASSIGN_OR_RETURN(const std::optional<int> least, Number(config, kLookupMin, kMaxLookupTokens));
  drafts.prompt_lookup_max = most.value_or(least.value_or(kDefaultLookup));
  drafts.prompt_lookup_min = least.value_or(drafts.prompt_lookup_max);
  if (drafts.prompt_lookup_min <= drafts.prompt_lookup_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kLookupMin, ": ", drafts.prompt_lookup_min,
                                                 " is more than ", kLookupMax, ", ",
                                                 drafts.prompt_lookup_max));
}

}  // namespace

absl::StatusOr<SpeculativeConfig> ParseSpeculativeConfig(const std::string& text) {
  SpeculativeConfig speculative;
  if (absl::StripAsciiWhitespace(text) == "null") return speculative;
  BH_ASSIGN_OR_RETURN(const nlohmann::json config,
                      ParseJsonObject(text, "the JSON object", {.max_depth = 4, .max_values = 64}));
  BH_ASSIGN_OR_RETURN(const std::string method, MethodOf(config));
  BH_RETURN_IF_ERROR(CheckKeys(config, method));
  BH_ASSIGN_OR_RETURN(const std::optional<int> tokens, Number(config, kTokens, kMaxDraftTokens));
  if (!tokens.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTokens, " is missing; give 1 to ", kMaxDraftTokens));
  }
  speculative.drafts.num_speculative_tokens = *tokens;
  speculative.drafts.mtp = method == kMtp;
  if (method == kMtp) return speculative;
  if (method == kNgram) {
    BH_RETURN_IF_ERROR(SetLookup(config, speculative.drafts));
    return speculative;
  }
  const auto model = config.find(kModel);
  if (model != config.end() && model->is_string()) speculative.model = model->get<std::string>();
  if (!speculative.model.empty()) return speculative;
  return absl::InvalidArgumentError(
      absl::StrCat(kModel, ": ", model == config.end() ? "missing" : JsonExcerpt(*model),
                   "; give a folder, or the name of a model as --model has it"));
}

}  // namespace bulkhead
