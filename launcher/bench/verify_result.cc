#include "launcher/bench/verify_result.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/bench/json_fields.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

bool PromisesBits(const VerifiedGroup& group) {
  const int n = group.ranks;
  return group.equal_shares && (n == 1 || n == 2 || n == 4 || n == 8);
}

bool IsNumbers(const ordered_json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const ordered_json& one) {
           return one.is_number_integer();
         });
}

absl::StatusOr<VerifiedAnswer> AnswerFrom(const ordered_json& json) {
  const bool complete = json.is_object() && json.contains("tokens") && IsNumbers(json["tokens"]) &&
                        json.contains("logprob_bits") && IsNumbers(json["logprob_bits"]);
  if (!complete) return absl::DataLossError("an answer in it is incomplete");
  VerifiedAnswer answer;
  answer.input_len = static_cast<int>(WholeOf(json, "input_len", 0));
  answer.sampled = SwitchOf(json, "sampled", false);
  answer.tokens = json["tokens"].get<std::vector<TokenId>>();
  answer.logprob_bits = json["logprob_bits"].get<std::vector<uint32_t>>();
  answer.logits_sha256 = TextOf(json, "logits_sha256");
  return answer;
}

std::string Text(const AnswerComparison& one) {
  return one.first_difference < 0 ? "equal" : absl::StrCat("differ at ", one.first_difference);
}

}  // namespace

std::string VerifiedGroup::ToJson() const {
  ordered_json list = ordered_json::array();
  for (const VerifiedAnswer& answer : answers) {
    list.push_back({{"input_len", answer.input_len},
                    {"sampled", answer.sampled},
                    {"tokens", answer.tokens},
                    {"logprob_bits", answer.logprob_bits},
                    {"logits_sha256", answer.logits_sha256}});
  }
  ordered_json json = {{"bench", "verify"},
                       {"version", version},
                       {"tensor_parallel_size", ranks},
                       {"equal_shares", equal_shares},
                       {"subject", subject}};
  json["answers"] = std::move(list);
  return json.dump(1) + "\n";
}

absl::StatusOr<VerifiedGroup> VerifiedGroup::FromJson(absl::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool complete = json.is_object() && TextOf(json, "bench") == "verify" &&
                        json.contains("subject") && json["subject"].is_object() &&
                        json.contains("answers") && json["answers"].is_array();
  if (!complete) return absl::DataLossError("it is not what 'bench verify --save' writes");
  VerifiedGroup group;
  group.version = TextOf(json, "version");
  group.ranks = static_cast<int>(WholeOf(json, "tensor_parallel_size", 1));
  group.equal_shares = SwitchOf(json, "equal_shares", true);
  for (const auto& [name, value] : json["subject"].items()) {
    group.subject[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  for (const ordered_json& one : json["answers"]) {
    absl::StatusOr<VerifiedAnswer> answer = AnswerFrom(one);
    if (!answer.ok()) return answer.status();
    group.answers.push_back(*std::move(answer));
  }
  return group;
}

absl::StatusOr<Comparison> Compare(const VerifiedGroup& reference, const VerifiedGroup& group) {
  for (const auto& [name, value] : group.subject) {
    const auto found = reference.subject.find(name);
    const std::string other = found == reference.subject.end() ? "nothing" : found->second;
    if (other != value) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved answers have ", name, " ", other, " and this group ", value,
                       "; save them again with the same model and flags"));
    }
  }
  if (reference.answers.size() != group.answers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", reference.answers.size(),
                                                   " saved answers and ", group.answers.size(),
                                                   " of this group"));
  }
  Comparison comparison;
  comparison.bits_promised = PromisesBits(reference) && PromisesBits(group);
  for (size_t i = 0; i < group.answers.size(); ++i) {
    const VerifiedAnswer& a = reference.answers[i];
    const VerifiedAnswer& b = group.answers[i];
    AnswerComparison& one = comparison.answers.emplace_back();
    if (a.tokens != b.tokens) {
      const auto [at, end] =
          std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
      one.first_difference = static_cast<int>(at - a.tokens.begin());
    }
    one.equal_logprobs = a.logprob_bits == b.logprob_bits;
    one.equal_logits = a.logits_sha256 == b.logits_sha256;
    comparison.tokens += static_cast<int>(b.tokens.size());
    comparison.differing_answers += one.first_difference >= 0 ? 1 : 0;
    comparison.differing_bits += one.equal_logprobs && one.equal_logits ? 0 : 1;
  }
  return comparison;
}

std::string ComparisonText(const VerifiedGroup& reference, const VerifiedGroup& group,
                           const Comparison& comparison) {
  const size_t count = comparison.answers.size();
  std::string text = absl::StrCat(
      group.ranks, group.ranks == 1 ? " rank against " : " ranks against ", reference.ranks, " (",
      PlacementText(group.hosts), "): ", count, " answers, ", comparison.tokens, " tokens: ",
      comparison.differing_answers == 0
          ? "all tokens equal"
          : absl::StrCat(comparison.differing_answers, " answers differ in their tokens"),
      "; ",
      comparison.differing_bits == 0
          ? "all logits equal, bit by bit"
          : absl::StrCat(comparison.differing_bits, " answers differ in bits of their logits",
                         comparison.bits_promised ? "" : ", which is not promised for these sizes"),
      "\n");
  if (comparison.ok()) return text;
  std::vector<std::vector<std::string>> rows = {
      {"answer", "input", "sampled", "tokens", "log probabilities", "logits"}};
  for (size_t i = 0; i < count; ++i) {
    const AnswerComparison& one = comparison.answers[i];
    const bool bits_differ = !one.equal_logprobs || !one.equal_logits;
    if (one.first_difference < 0 && !(comparison.bits_promised && bits_differ)) continue;
    rows.push_back({absl::StrCat(i), absl::StrCat(group.answers[i].input_len),
                    group.answers[i].sampled ? "yes" : "no", Text(one),
                    one.equal_logprobs ? "equal" : "differ",
                    one.equal_logits ? "equal" : "differ"});
  }
  return text + TextTable(rows);
}

std::string ComparisonJson(const VerifiedGroup& reference, const VerifiedGroup& group,
                           const Comparison& comparison) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < comparison.answers.size(); ++i) {
    const AnswerComparison& one = comparison.answers[i];
    list.push_back({{"input_len", group.answers[i].input_len},
                    {"sampled", group.answers[i].sampled},
                    {"first_difference", one.first_difference},
                    {"equal_logprobs", one.equal_logprobs},
                    {"equal_logits", one.equal_logits}});
  }
  return ordered_json{{"bench", "verify"},
                      {"ok", comparison.ok()},
                      {"tensor_parallel_size", group.ranks},
                      {"hosts", group.hosts},
                      {"reference_tensor_parallel_size", reference.ranks},
                      {"tokens", comparison.tokens},
                      {"differing_answers", comparison.differing_answers},
                      {"differing_bits", comparison.differing_bits},
                      {"bits_promised", comparison.bits_promised},
                      {"answers", std::move(list)}}
             .dump(2) +
         "\n";
}

}  // namespace bulkhead
