#include "runtime/service/generate_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {
namespace {

// Request id, epoch, seed, and the end.
constexpr int64_t kMaxHeadBytes = kMaxRequestIdBytes + 128;

}  // namespace

absl::StatusOr<EngineCall::Parsed> ParseGenerate(grpc::ByteBuffer& message, bool& echoes_prompt) {
  auto request = std::make_shared<v1::GenerateRequest>();
  BH_RETURN_IF_ERROR(ParseRequest(message, *request));
  echoes_prompt = request->output().prompt_token_ids();
  const size_t text_bytes = request->text().size();
  return EngineCall::Parsed{text_bytes, [request = std::move(request)](const RequestRules& rules) {
                              return BuildRequest(*request, rules);
                            }};
}

int64_t MaxGenerateBytes(const Request& request, const RequestRules& rules, bool echoes_prompt) {
  const int64_t tokens = std::max<int64_t>(0, EffectiveMaxTokens(request, rules.max_model_len) -
                                                  static_cast<int64_t>(request.emitted.size()));
  const int64_t token_bytes = MaxTokenBytes(rules.vocab_size, request.num_logprobs) +
                              (request.wants_text ? kTextBytesPerToken : 0);
  const int64_t echo_bytes =
      echoes_prompt
          ? MaxTokenIdsBytes(rules.vocab_size, static_cast<int64_t>(request.prompt.size()))
          : 0;
  return kMaxHeadBytes + echo_bytes + tokens * token_bytes + kMaxEndBytes;
}

}  // namespace bulkhead
