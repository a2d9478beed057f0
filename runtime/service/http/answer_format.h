// AnswerFormat: how an answer is written as JSON: completions or chats, whole or in events. One for
// each request; used by the front end's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/http/body_parts.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/service/packed_reader.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

struct UsageCounts {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;  // of the prompt's tokens
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // For streams: before everything else, after everything, and for an error once events were sent.
  virtual BodyParts Opening() { return {}; }
  virtual BodyParts Closing();
  virtual BodyParts Failure(const absl::Status& status);
  // One or more events, each a line "data: {...}" and an empty line. `usage`: so far, of that
  // choice, if the client wants it. Not ok: the answer ends with that status.
  virtual absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                          const UsageCounts& usage) = 0;
  virtual BodyParts Finished(int choice, const v1::Finished& finished,
                             const UsageCounts& usage) = 0;
  // Before the first delta of a choice whose prompt is repeated, as text or ids.
  // `ids`: packed.
  virtual BodyParts Prompt(int /*choice*/, PackedMessage /*ids*/, const UsageCounts& /*usage*/) {
    return {};
  }
  // After the prompt, if asked for: a v1::PromptLogprobs.
  virtual BodyParts PromptLogprobs(int /*choice*/, PackedMessage /*tokens*/,
                                   const UsageCounts& /*usage*/) {
    return {};
  }
  // The last event, without choices.
  virtual BodyParts Usage(const UsageCounts& usage) = 0;
  // The whole answer, from a v1::GenerateResponse for each choice.
  virtual BodyParts Whole(const std::vector<PackedMessage>& responses,
                          const UsageCounts& usage) = 0;
};

// The members that the objects of one answer share.
class AnswerFrame {
 public:
  AnswerFrame(absl::string_view id, absl::string_view object, int64_t created_unix_s,
              absl::string_view model, const GenerationOptions& options);

  // "data: {..., "choices":[`choice`]...}", the usage as the client wants it.
  std::string Event(absl::string_view choice, const UsageCounts& usage) const;
  // The same in two parts: up to `choice`, and from the end of the list that is open after it.
  std::string EventBegin(absl::string_view choice) const;
  std::string EventEnd(const UsageCounts& usage) const;
  std::string UsageEvent(const UsageCounts& usage) const;
  // Up to the list of choices, and after it.
  std::string Begin() const;
  static std::string End(const UsageCounts& usage);

 private:
  std::string head_;
  bool include_usage_;
  bool continuous_usage_;
};

std::string UsageJson(const UsageCounts& usage);
// "1,2,3": packed numbers, or the ids of the v1::Tokens in `field`. With `spelt`, which outlives
// `out`: the tokens as texts.
void AddTokenIds(PackedMessage packed, std::optional<int> field, BodyParts* out,
                 const Tokenizer* spelt = nullptr);
// "stop" or "length", with quotes; the stop string or token id, or null.
std::string FinishReasonJson(const v1::Finished& finished);
std::string StopReasonJson(const v1::Finished& finished);

}  // namespace bulkhead
