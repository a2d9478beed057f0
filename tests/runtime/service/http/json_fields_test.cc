// Fields of bodies: numbers of 64 bits, and those of other servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/completion_request.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

absl::StatusOr<CompletionRequest> CompletionWith(const std::string& field) {
  absl::StatusOr<Json> body = ParseBody(absl::StrCat(R"({"prompt": "a", )", field, "}"));
  if (!body.ok()) return body.status();
  RequestRules rules;
  rules.max_model_len = 64;
  return ReadCompletion(*body, rules);
}

TEST(JsonFields, ASeedHas64BitsWithASignOrWithout) {
  for (const uint64_t seed : {uint64_t{5}, uint64_t{16678420505050645400U}, ~uint64_t{0}}) {
    const auto read = CompletionWith(absl::StrCat(R"("seed": )", seed));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->prompts[0].sampling().seed(), seed) << "as one that is drawn";
  }
  const absl::Status larger = CompletionWith(R"("seed": 18446744073709551616)").status();
  EXPECT_EQ(ReasonOf(larger), reason::kInvalidValue) << larger;
}

TEST(JsonFields, ThoseOfOtherServersSayWhichIsOurs) {
  for (const auto& [theirs, ours] : {std::pair("repeat_penalty", "write repetition_penalty"),
                                     {"n_predict", "write max_tokens"},
                                     {"max_completion_tokens", "write max_tokens"},
                                     {"extra_body", "send them there"},
                                     {"cache_prompt", "leave it out"},
                                     {"mirostat", "top_k and min_p are"},
                                     {"ebnf", "structured_outputs are"},
                                     {"guided_grammar", "guided_json, guided_regex"},
                                     {"guided_decoding_backend", "one backend"}}) {
    const absl::Status refused = CompletionWith(absl::StrCat("\"", theirs, "\": 1")).status();
    EXPECT_EQ(ReasonOf(refused), reason::kUnsupportedParameter) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(ours));
  }
  for (const char* form : {"grammar", "structural_tag"}) {
    const absl::Status refused =
        CompletionWith(absl::StrCat(R"("structured_outputs": {")", form, R"(": "a"})")).status();
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("json, regex and choice are"));
  }
}

TEST(JsonFields, ThoseOfOtherServersAreTakenWithTheValueThatAsksForNothing) {
  constexpr std::pair<const char*, std::pair<const char*, const char*>> kFields[] = {
      {"watermarking", {"false", "true"}},
      {"return_weight_versions", {"false", "true"}},
      {"return_token_offsets", {"false", "true"}},
      {"return_prompt_text", {"false", "true"}},
      {"return_hidden_states", {"false", "\"last\""}},
      {"return_mm_kwargs", {"false", "true"}},
      {"mm_payload", {"null", "\"a\""}},
      {"no_stop_trim", {"false", "true"}},
      {"separate_reasoning", {"true", "false"}},
      {"stream_reasoning", {"true", "false"}},
      {"cache_prompt", {"true", "false"}},
      {"vllm_xargs", {"{}", R"({"a": 1})"}},
      {"kv_transfer_params", {"{}", R"({"a": 1})"}},
      {"ec_transfer_params", {"{}", R"({"a": 1})"}},
      {"media_io_kwargs", {"{}", R"({"video": {}})"}},
      {"mm_processor_kwargs", {"{}", R"({"a": 1})"}},
      {"logprob_token_ids", {"[]", "[1]"}},
      {"stream_interval", {"1", "2"}},
      {"length_penalty", {"1.0", "0.5"}},
      {"routed_experts_prompt_start", {"0", "1"}},
      {"thinking_token_budget", {"-1", "0"}},
      {"truncation_side", {"\"left\"", "\"right\""}},
      {"repetition_detection",
       {R"({"max_pattern_size": 0, "min_pattern_size": 0, "min_count": 0})",
        R"({"max_pattern_size": 2, "min_count": 3})"}}};
  for (const auto& [name, values] : kFields) {
    for (const char* const nothing : {"null", values.first}) {
      const auto taken = CompletionWith(absl::StrCat("\"", name, "\": ", nothing));
      EXPECT_TRUE(taken.ok()) << taken.status();
    }
    const absl::Status refused =
        CompletionWith(absl::StrCat("\"", name, "\": ", values.second)).status();
    EXPECT_EQ(ReasonOf(refused), reason::kUnsupportedParameter) << name << ": " << refused;
  }
}

TEST(JsonFields, ASlipIsToldWithTheNearestName) {
  for (const auto& [slip, meant] : {std::pair("max_token", "did you mean max_tokens?"),
                                    {"maxtokens", "max_tokens?"},
                                    {"temprature", "temperature?"},
                                    {"surprise", "does not know it; leave it out"},
                                    {"nn", "does not know it; leave it out"}}) {
    const absl::Status refused = CompletionWith(absl::StrCat("\"", slip, "\": 1")).status();
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(meant));
  }
  const std::string name(10'000, 'x');  // is compared with nothing
  EXPECT_THAT(std::string(CompletionWith(absl::StrCat("\"", name, "\": 1")).status().message()),
              testing::HasSubstr("leave it out"));
}

}  // namespace
}  // namespace bulkhead
