#include "runtime/service/prompt_builder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/engine/request.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// Worded as clients of the OpenAI API recognise it. `known`: precision of `tokens`, if not exact.
absl::Status PromptTooLong(absl::string_view field, int64_t tokens, const RequestRules& rules,
                           int reserved_tokens, absl::string_view known = "") {
  const int started = std::max(rules.started_max_model_len, rules.max_model_len);
  const std::string raise = tokens <= started - reserved_tokens
                                ? absl::StrCat("or reset the limit, which was lowered from ",
                                               started, " ('bulkhead limits --reset')")
                                : "or start with a larger --max-model-len, where the "
                                  "model takes more";
  return InvalidField(
      field,
      absl::StrCat("the prompt is too long: ", known, tokens,
                   " tokens; this model's maximum context length is ", rules.max_model_len,
                   " tokens, and max_model_len ", rules.max_model_len, " leaves ",
                   rules.max_model_len - reserved_tokens, " for a prompt; shorten it, ", raise),
      reason::kPromptTooLong,
      {{"prompt_tokens", absl::StrCat(tokens)},
       {"max_model_len", absl::StrCat(rules.max_model_len)}});
}

// How many of the last tokens are kept. `most`: the maximum of the prompt.
absl::StatusOr<size_t> KeptTokens(const v1::GenerateRequest& request, int max_model_len, int most) {
  if (!request.has_truncate_prompt_tokens()) return std::numeric_limits<size_t>::max();
  const uint32_t kept = request.truncate_prompt_tokens();
  if (kept == kTruncateToFit) {
    // An answer of unspecified length has at least one token.
    const v1::Stopping& stopping = request.stopping();
    const bool embeds = request.output().embedding();
    const int64_t asked = embeds ? 0 : stopping.has_max_tokens() ? stopping.max_tokens() : 1;
    if (asked < max_model_len) return static_cast<size_t>(max_model_len - asked);
    return InvalidField("truncate_prompt_tokens",
                        absl::StrCat("max_tokens ", asked, " leaves no prompt of max_model_len ",
                                     max_model_len, "; ask for fewer tokens"),
                        reason::kInvalidValue,
                        {{"value", absl::StrCat(asked)}, {"limit", absl::StrCat(max_model_len)}});
  }
  if (kept >= 1 && int64_t{kept} <= most) return kept;
  return InvalidField(
      "truncate_prompt_tokens",
      absl::StrCat(kept, " is outside [1, ", most, "], what max_model_len leaves for a prompt"),
      reason::kInvalidValue, {{"value", absl::StrCat(kept)}, {"limit", absl::StrCat(most)}});
}

absl::StatusOr<std::vector<TokenId>> EncodeText(const v1::GenerateRequest& request,
                                                const RequestRules& rules) {
  if (rules.tokenizer == nullptr) {
    return InvalidField("prompt.text",
                        "the model has no tokenizer.json, so text is not supported; send token ids",
                        reason::kTextNotSupported);
  }
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  absl::StatusOr<std::vector<TokenId>> ids = rules.tokenizer->Encode(request.text(), add_special);
  if (ids.ok() && add_special && BeginsWithTwoBos(*rules.tokenizer, *ids)) {
    WarnOfTwoBos(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  if (ids.ok()) return ids;
  // Retrying the same text would fail again, so the code must not invite a retry.
  return InvalidField("prompt.text", ids.status().message());
}

}  // namespace

int AdapterNamed(absl::string_view model, const RequestRules& rules) {
  const auto found = absl::c_find_if(
      rules.adapters, [&](const ServedAdapter& adapter) { return adapter.name == model; });
  return found == rules.adapters.end() ? 0 : static_cast<int>(found - rules.adapters.begin()) + 1;
}

void SetAdapter(absl::string_view model, const RequestRules& rules, Request& request) {
  request.adapter = AdapterNamed(model, rules);
  if (request.adapter > 0) request.adapter_name = std::string(model);
}

std::vector<std::string> ModelNames(const RequestRules& rules) {
  std::vector<std::string> names = rules.served_model_names;
  for (const ServedAdapter& adapter : rules.adapters) names.push_back(adapter.name);
  return names;
}

absl::Status CheckNames(const v1::GenerateRequest& request, const RequestRules& rules) {
  const std::string& id = request.request_id();
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (id.size() > kMaxRequestIdBytes || !printable) {
    return InvalidField("request_id",
                        absl::StrCat(Quoted(id), " is not at most ", kMaxRequestIdBytes,
                                     " printable ASCII characters without spaces"));
  }
  const std::string& salt = request.cache_salt();
  if (request.has_cache_salt() && (salt.empty() || salt.size() > kMaxCacheSaltBytes)) {
    return InvalidField(
        "cache_salt",
        salt.empty() ? "is empty and would separate nothing; leave it out"
                     : absl::StrCat(salt.size(), " bytes are more than the limit of ",
                                    kMaxCacheSaltBytes, "; send a hash of it"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(salt.size())}, {"limit", absl::StrCat(kMaxCacheSaltBytes)}});
  }
  if (!request.model().empty() && AdapterNamed(request.model(), rules) == 0 &&
      !absl::c_linear_search(rules.served_model_names, request.model())) {
    const std::vector<std::string> served = ModelNames(rules);
    return WithReason(
        absl::NotFoundError(absl::StrCat("model ", Quoted(request.model()), " is not served here; ",
                                         absl::StrJoin(served, ", "), " is")),
        reason::kModelNotFound,
        {{"model", Quoted(request.model())}, {"served", absl::StrJoin(served, ",")}});
  }
  return absl::OkStatus();
}

absl::Status RefuseUnknownFields(const google::protobuf::Message& message,
                                 const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    const std::string field = absl::StrCat(path, "field ", unknown.field(0).number());
    return InvalidField(field, "this server does not know it; leave it out or use a newer server",
                        reason::kUnsupportedParameter);
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message || field->is_repeated()) continue;  // no repeated messages in a request
    BH_RETURN_IF_ERROR(RefuseUnknownFields(reflection.GetMessage(message, field),
                                           absl::StrCat(path, field->name(), ".")));
  }
  return absl::OkStatus();
}

absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size,
                           absl::string_view field) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < static_cast<uint32_t>(vocab_size)) continue;
    return InvalidField(absl::StrCat(field, "[", i, "]"),
                        absl::StrCat(ids[i], " is not an id of the model, which has ", vocab_size,
                                     " (0 to ", vocab_size - 1, ")"),
                        reason::kInvalidValue,
                        {{"value", absl::StrCat(ids[i])}, {"limit", absl::StrCat(vocab_size - 1)}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> CheckedTokenIds(
    const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size, absl::string_view field) {
  BH_RETURN_IF_ERROR(CheckTokenIds(ids, vocab_size, field));
  return std::vector<TokenId>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<TokenId>> BuildPrompt(const v1::GenerateRequest& request,
                                                 const RequestRules& rules, int reserved_tokens) {
  const int most = rules.max_model_len - reserved_tokens;
  BH_ASSIGN_OR_RETURN(const size_t kept, KeptTokens(request, rules.max_model_len, most));
  std::vector<TokenId> prompt;
  const char* field = request.has_text() ? "prompt.text" : "prompt.token_ids";
  if (request.has_text()) {
    // Avoid tokenising what cannot fit.
    const int64_t min_count =
        rules.tokenizer == nullptr
            ? 0
            : static_cast<int64_t>(rules.tokenizer->MinTokenCount(request.text().size()));
    if (min_count > most && !request.has_truncate_prompt_tokens())
      return PromptTooLong(field, min_count, rules, reserved_tokens, "at least ");
    BH_ASSIGN_OR_RETURN(prompt, EncodeText(request, rules));
  } else if (request.has_token_ids()) {
    // Length first: a list that cannot fit is refused before it is copied.
    if (request.token_ids().ids_size() > most && !request.has_truncate_prompt_tokens()) {
      return PromptTooLong(field, request.token_ids().ids_size(), rules, reserved_tokens);
    }
    BH_ASSIGN_OR_RETURN(prompt,
                        CheckedTokenIds(request.token_ids().ids(), rules.vocab_size, field));
    if (request.has_add_special_tokens() && request.add_special_tokens()) {
      return InvalidField("add_special_tokens",
                          "applies only to text prompts; put the ids into token_ids");
    }
  } else {
    return InvalidField("prompt", "is missing; send text or token_ids");
  }
  if (prompt.size() > kept) {
    prompt.erase(prompt.begin(), prompt.end() - static_cast<ptrdiff_t>(kept));
    prompt.shrink_to_fit();
  }
  if (prompt.empty()) {
    return InvalidField(field, "is empty; send at least one token");
  }
  if (static_cast<int64_t>(prompt.size()) > most) {
    return PromptTooLong(field, static_cast<int64_t>(prompt.size()), rules, reserved_tokens);
  }
  for (const TokenId id : prompt) {
    if (id >= 0 && id < rules.vocab_size) continue;
    return InvalidField(
        field, absl::StrCat("the tokenizer gives id ", id, ", beyond the model's vocabulary of ",
                            rules.vocab_size, "; tokenizer.json does not belong to the model"));
  }
  return prompt;
}

bool BeginsWithTwoBos(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt) {
  if (prompt.size() < 2 || prompt[0] != prompt[1]) return false;
  const absl::StatusOr<std::vector<TokenId>> added = tokenizer.Encode("", true);
  return added.ok() && !added->empty() && added->front() == prompt[0];
}

void WarnOfTwoBos(int64_t now_ns) {
  constexpr int64_t kQuietNanos = 60'000'000'000;
  static std::atomic<int64_t> next_ns = 0;
  int64_t due_ns = next_ns.load();
  if (now_ns < due_ns || !next_ns.compare_exchange_strong(due_ns, now_ns + kQuietNanos)) return;
  BH_LOG(kWarning)
      << "a text prompt begins with the BOS token, and the tokenizer adds another: send "
         "texts that a chat template made with add_special_tokens false (generate "
         "--no-special-tokens)";
}

}  // namespace bulkhead
