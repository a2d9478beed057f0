#include "runtime/service/http/answer_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/openai_error.h"

namespace bulkhead {

BodyParts AnswerFormat::Closing() { return BodyParts("data: [DONE]\n\n"); }

BodyParts AnswerFormat::Failure(const absl::Status& status) {
  return BodyParts(absl::StrCat("data: ", ErrorJson(status, HttpStatusOf(status)), "\n\n"));
}

AnswerFrame::AnswerFrame(absl::string_view id, absl::string_view object, int64_t created_unix_s,
                         absl::string_view model, const GenerationOptions& options)
    : head_(absl::StrCat("{\"id\":", JsonString(id), ",\"object\":\"", object, "\",\"created\":",
                         created_unix_s, ",\"model\":", JsonString(model), ",\"choices\":[")),
      include_usage_(options.include_usage),
      continuous_usage_(options.continuous_usage) {}

std::string AnswerFrame::Event(absl::string_view choice, const UsageCounts& usage) const {
  return EventBegin(choice) + EventEnd(usage);
}

std::string AnswerFrame::EventBegin(absl::string_view choice) const {
  return absl::StrCat("data: ", head_, choice);
}

std::string AnswerFrame::EventEnd(const UsageCounts& usage) const {
  return !include_usage_      ? "]}\n\n"
         : !continuous_usage_ ? "],\"usage\":null}\n\n"
                              : absl::StrCat(End(usage), "\n\n");
}

std::string AnswerFrame::UsageEvent(const UsageCounts& usage) const {
  return absl::StrCat("data: ", head_, End(usage), "\n\n");
}

std::string AnswerFrame::Begin() const { return head_; }

std::string AnswerFrame::End(const UsageCounts& usage) {
  return absl::StrCat("],\"usage\":", UsageJson(usage), "}");
}

std::string UsageJson(const UsageCounts& usage) {
  return absl::StrCat("{\"prompt_tokens\":", usage.prompt_tokens,
                      ",\"completion_tokens\":", usage.completion_tokens,
                      ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
                      ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens, "}}");
}

void AddTokenIds(PackedMessage packed, std::optional<int> field, BodyParts* out,
                 const Tokenizer* spelt) {
  out->AddPart([owner = std::move(packed.owner), reader = PackedReader(packed.bytes), field, spelt,
                is_first = true](std::string* bytes) mutable {
    const size_t enough = bytes->size() + BodyParts::kSliceBytes / 2;
    uint64_t id = 0;
    v1::Token token;
    while (bytes->size() < enough) {
      if (!(field.has_value() ? reader.NextToken(*field, &token) : reader.NextNumber(&id))) {
        return true;
      }
      if (field.has_value()) id = token.id();
      absl::StrAppend(bytes, std::exchange(is_first, false) ? "" : ",",
                      spelt == nullptr ? absl::StrCat(id)
                                       : JsonString(spelt->TokenOf(static_cast<int32_t>(id))));
    }
    return false;
  });
}

std::string FinishReasonJson(const v1::Finished& finished) {
  switch (finished.reason()) {
    case v1::FINISH_REASON_MAX_TOKENS:
    case v1::FINISH_REASON_MODEL_LENGTH:
    case v1::FINISH_REASON_TIME_LIMIT:
      return "\"length\"";
    default:
      return "\"stop\"";
  }
}

std::string StopReasonJson(const v1::Finished& finished) {
  if (finished.has_stop_string()) return JsonString(finished.stop_string());
  // As in vLLM: null for the model's own end of sequence.
  if (finished.reason() == v1::FINISH_REASON_STOP_TOKEN) {
    return absl::StrCat(finished.stop_token_id());
  }
  return "null";
}

}  // namespace bulkhead
