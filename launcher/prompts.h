// Prompts files and result lines: the JSON lines that `generate` and `run` read and write.
//
// A prompt line: {"prompt": "text"} or {"prompt_token_ids": [1, 2]}, and any of request_id, model,
// max_tokens, min_tokens, temperature, top_p, top_k, min_p, seed, repetition_penalty,
// presence_penalty, frequency_penalty, logit_bias ({"id": bias}), allowed_token_ids, bad_words,
// stop (string or list), stop_token_ids, ignore_eos, include_stop_in_output, add_special_tokens,
// skip_special_tokens, logprobs, prompt_logprobs, truncate_prompt_tokens, time_limit_ms, priority,
// cache_salt; json_schema (a text or an object), json_object, regex, choice (a list). null means
// absent. A line overrides flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bulkhead/v1/generation.pb.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The request from `options` only: no prompt, and only given fields set.
v1::GenerateRequest RequestOf(const RequestOptions& options);

// One line applied over `defaults`. INVALID_ARGUMENT naming the key if the line is not a JSON
// object, has an unknown key, a wrong type or a number out of its field's range, or not exactly one
// prompt. Values are validated for the model elsewhere, with the requests.
absl::StatusOr<v1::GenerateRequest> ParsePromptLine(absl::string_view line,
                                                    const v1::GenerateRequest& defaults);

// INVALID_ARGUMENT if `text`, the "prompt", is not UTF-8.
absl::Status CheckUtf8(absl::string_view what, absl::string_view text);

// A request for one text prompt; CheckUtf8.
absl::StatusOr<v1::GenerateRequest> TextRequest(const std::string& text,
                                                const v1::GenerateRequest& defaults);

struct PromptLine {
  int64_t number = 0;  // 1-based line in its file; 0: from the command line
  absl::StatusOr<v1::GenerateRequest> request;
};
// A prompt's error, prefixed with its line number if it has one.
absl::Status AtLine(int64_t number, const absl::Status& status);

// Every line in order, without blank ones; a bad line is an error in its place (AtLine). `path` "-"
// is standard input. NOT_FOUND with exit code 2, naming `flag`, if the file cannot be read.
using PromptLines = std::vector<PromptLine>;
absl::StatusOr<PromptLines> ReadPrompts(const std::string& path,
                                        const v1::GenerateRequest& defaults,
                                        absl::string_view flag = "--prompts");
// Called before a model is loaded: warns of invalid lines; INVALID_ARGUMENT with exit code 2 if no
// line is valid.
absl::Status CheckLines(absl::string_view flag, const PromptLines& lines);

// The lines of `score`: {"text": "..."} or {"prompt_token_ids": [1, 2]}, add_special_tokens and
// model.
absl::StatusOr<PromptLines> ReadTexts(const std::string& path);

// Result of one prompt.
struct GenerationResult {
  int64_t index = 0;
  std::vector<uint32_t> prompt_token_ids;
  std::vector<v1::Token> tokens;
  std::string text;
  uint64_t seed = 0;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  bool wants_logprobs = false;
  std::vector<v1::Token> prompt_logprobs;  // if asked for
  absl::Status status;                     // not ok: `tokens` and `text` are what had arrived
};

// "stop", "length" or "time_limit".
absl::string_view FinishReasonText(v1::FinishReason reason);

// One line of JSON without the newline:
//   {"index","prompt_token_ids","token_ids","text","finish_reason","seed"[,"logprobs"]
//    [,"prompt_logprobs"]}
//   {"index","token_ids","text","error":{"code","message"}}
std::string ResultLine(const GenerationResult& result);

}  // namespace bulkhead
