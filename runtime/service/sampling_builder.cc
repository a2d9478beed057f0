#include "runtime/service/sampling_builder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

struct FloatRange {
  float low;
  float high;
  bool low_allowed;
  const char* text;
};

constexpr FloatRange kTemperatureRange = {0, kMaxTemperature, true, "[0, 100]; 0 is greedy"};
constexpr FloatRange kTopPRange = {0, 1, false, "(0, 1]; 1 is off"};
constexpr FloatRange kMinPRange = {0, 1, true, "[0, 1]; 0 is off"};
constexpr FloatRange kRepetitionRange = {kMinRepetitionPenalty, kMaxRepetitionPenalty, true,
                                         "[0.01, 100]; 1 is off"};
constexpr FloatRange kPenaltyRange = {-2, 2, true, "[-2, 2]; 0 is off"};
constexpr FloatRange kBiasRange = {-100, 100, true, "[-100, 100]"};

std::optional<float> Given(bool has, float value) {
  return has ? std::optional<float>(value) : std::nullopt;
}

// The request's value, else generation_config.json's, else `otherwise`. Comparisons are written so
// that NaN fails them.
absl::StatusOr<float> Choose(absl::string_view name, std::optional<float> asked,
                             std::optional<double> configured, float otherwise,
                             const FloatRange& range) {
  const float value =
      asked.has_value() ? *asked : static_cast<float>(configured.value_or(otherwise));
  const bool fits =
      (value > range.low || (range.low_allowed && value == range.low)) && value <= range.high;
  if (fits) return value + 0.0F;           // -0 becomes 0
  std::string text = absl::StrCat(value);  // the number as sent, if that is the same float
  float read = 0;
  if (!absl::SimpleAtof(text, &read) || read != value) text = absl::StrFormat("%.9g", value);
  return InvalidField(absl::StrCat("sampling.", name),
                      absl::StrCat(text, asked.has_value() ? "" : " (from generation_config.json)",
                                   " is outside ", range.text),
                      reason::kInvalidValue, {{"value", text}, {"limit", range.text}});
}

absl::Status TooMany(absl::string_view field, int64_t count, int64_t limit,
                     absl::string_view what) {
  return InvalidField(
      field, absl::StrCat(count, " ", what, " are more than the limit of ", limit, "; send fewer"),
      reason::kInvalidValue, {{"value", absl::StrCat(count)}, {"limit", absl::StrCat(limit)}});
}

absl::StatusOr<std::vector<LogitBias>> BuildBias(
    const google::protobuf::Map<uint32_t, float>& asked, const RequestRules& rules) {
  constexpr char kField[] = "sampling.logit_bias";
  if (asked.size() > kMaxLogitBiases) {
    return TooMany(kField, static_cast<int64_t>(asked.size()), kMaxLogitBiases, "ids");
  }
  std::vector<LogitBias> out;
  out.reserve(asked.size());
  for (const auto& [id, bias] : asked) {
    const std::string name = absl::StrCat("logit_bias[", id, "]");
    if (id >= static_cast<uint32_t>(rules.vocab_size)) {
      return InvalidField(
          absl::StrCat("sampling.", name),
          absl::StrCat(id, " is not an id of the model, which has ", rules.vocab_size),
          reason::kInvalidValue,
          {{"value", absl::StrCat(id)}, {"limit", absl::StrCat(rules.vocab_size - 1)}});
    }
    BH_ASSIGN_OR_RETURN(const float value, Choose(name, bias, std::nullopt, 0, kBiasRange));
    out.push_back({static_cast<TokenId>(id), value});
  }
  std::sort(out.begin(), out.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
  return out;
}

absl::StatusOr<std::vector<TokenId>> BuildAllowed(
    const google::protobuf::RepeatedField<uint32_t>& asked, const RequestRules& rules) {
  constexpr char kField[] = "sampling.allowed_token_ids";
  if (asked.size() > kMaxAllowedTokenIds) {
    return TooMany(kField, asked.size(), kMaxAllowedTokenIds, "ids");
  }
  BH_ASSIGN_OR_RETURN(std::vector<TokenId> out, CheckedTokenIds(asked, rules.vocab_size, kField));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

absl::StatusOr<std::vector<TokenId>> EncodeBadWord(const std::string& field,
                                                   const std::string& text,
                                                   const RequestRules& rules) {
  absl::StatusOr<std::vector<TokenId>> ids =
      rules.tokenizer->Encode(text, /*add_special_tokens=*/false);
  if (!ids.ok()) return InvalidField(field, ids.status().message());
  if (ids->empty()) return InvalidField(field, "has no tokens; leave it out");
  for (const TokenId id : *ids) {
    if (id >= 0 && id < rules.vocab_size) continue;
    return InvalidField(
        field, absl::StrCat("the tokenizer gives id ", id, ", beyond the model's vocabulary of ",
                            rules.vocab_size));
  }
  ids->shrink_to_fit();
  return ids;
}

absl::StatusOr<std::vector<std::vector<TokenId>>> BuildBadWords(
    const google::protobuf::RepeatedPtrField<std::string>& asked, const RequestRules& rules) {
  constexpr char kField[] = "sampling.bad_words";
  if (asked.empty()) return std::vector<std::vector<TokenId>>();
  if (asked.size() > kMaxBadWords) return TooMany(kField, asked.size(), kMaxBadWords, "words");
  if (rules.tokenizer == nullptr) {
    return InvalidField(kField,
                        "the model has no tokenizer.json, so words have no tokens; use logit_bias "
                        "or allowed_token_ids",
                        reason::kTextNotSupported);
  }
  std::vector<std::vector<TokenId>> out;
  for (int i = 0; i < asked.size(); ++i) {
    const std::string field = absl::StrCat(kField, "[", i, "]");
    if (asked[i].size() > kMaxBadWordBytes) {
      return TooMany(field, static_cast<int64_t>(asked[i].size()), kMaxBadWordBytes, "bytes");
    }
    if (!IsValidUtf8(asked[i])) {
      return InvalidField(field, absl::StrCat(Quoted(asked[i]), " is not valid UTF-8"));
    }
    const std::string word(absl::StripLeadingAsciiWhitespace(asked[i]));
    if (word.empty()) return InvalidField(field, "is empty or blank; leave it out");
    BH_ASSIGN_OR_RETURN(std::vector<TokenId> bare, EncodeBadWord(field, word, rules));
    BH_ASSIGN_OR_RETURN(std::vector<TokenId> spaced,
                        EncodeBadWord(field, absl::StrCat(" ", word), rules));
    const bool ends_alike =
        spaced.size() >= bare.size() && std::equal(bare.rbegin(), bare.rend(), spaced.rbegin());
    out.push_back(std::move(bare));
    if (!ends_alike) out.push_back(std::move(spaced));
  }
  return out;
}

}  // namespace

absl::StatusOr<SamplingParams> BuildSampling(const v1::Sampling& asked, const RequestRules& rules) {
  const GenerationDefaults& defaults = rules.defaults;
  // do_sample false means greedy, whatever temperature the file also has.
  const std::optional<double> configured_temperature =
      defaults.do_sample == std::optional<bool>(false) ? std::optional<double>(0.0)
                                                       : defaults.temperature;
  SamplingParams out;
  BH_ASSIGN_OR_RETURN(out.temperature,
                      Choose("temperature", Given(asked.has_temperature(), asked.temperature()),
                             configured_temperature, 1.0F, kTemperatureRange));
  BH_ASSIGN_OR_RETURN(out.top_p, Choose("top_p", Given(asked.has_top_p(), asked.top_p()),
                                        defaults.top_p, 1.0F, kTopPRange));
  BH_ASSIGN_OR_RETURN(out.min_p, Choose("min_p", Given(asked.has_min_p(), asked.min_p()),
                                        defaults.min_p, 0.0F, kMinPRange));
  // More than the vocabulary means off; files write "off" as 0 or -1.
  const int64_t top_k =
      asked.has_top_k() ? int64_t{asked.top_k()} : int64_t{std::max(0, defaults.top_k.value_or(0))};
  out.top_k = top_k >= rules.vocab_size ? 0 : static_cast<int>(top_k);
  out.seed = asked.has_seed() ? asked.seed() : RandomSeed();
  return out;
}

absl::StatusOr<LogitsParams> BuildLogits(const v1::Sampling& asked, const RequestRules& rules) {
  LogitsParams out;
  BH_ASSIGN_OR_RETURN(out.repetition_penalty,
                      Choose("repetition_penalty",
                             Given(asked.has_repetition_penalty(), asked.repetition_penalty()),
                             rules.defaults.repetition_penalty, 1.0F, kRepetitionRange));
  BH_ASSIGN_OR_RETURN(
      out.presence_penalty,
      Choose("presence_penalty", Given(asked.has_presence_penalty(), asked.presence_penalty()),
             std::nullopt, 0.0F, kPenaltyRange));
  BH_ASSIGN_OR_RETURN(
      out.frequency_penalty,
      Choose("frequency_penalty", Given(asked.has_frequency_penalty(), asked.frequency_penalty()),
             std::nullopt, 0.0F, kPenaltyRange));
  BH_ASSIGN_OR_RETURN(out.bias, BuildBias(asked.logit_bias(), rules));
  BH_ASSIGN_OR_RETURN(out.allowed, BuildAllowed(asked.allowed_token_ids(), rules));
  BH_ASSIGN_OR_RETURN(out.bad_words, BuildBadWords(asked.bad_words(), rules));
  return out;
}

}  // namespace bulkhead
