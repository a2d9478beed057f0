#include "launcher/clients/limits.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/message_json.h"
#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/exit_status.h"
#include "launcher/text_table.h"

namespace bulkhead {

absl::Status RunLimits(const LimitsOptions& options) {
  BH_ASSIGN_OR_RETURN(const auto channel,
                      Connect(options.target, options.credentials, kConnectLimit));
  const auto control = v1::Control::NewStub(channel);
  v1::SetLimitsRequest request;
  request.set_reset(options.reset);
  if (options.max_num_seqs.has_value()) request.set_max_num_seqs(*options.max_num_seqs);
  if (options.max_model_len.has_value()) request.set_max_model_len(*options.max_model_len);
  if (options.max_num_queued_reqs.has_value()) {
    request.set_max_num_queued_reqs(*options.max_num_queued_reqs);
  }
  v1::SetLimitsResponse response;
  BH_RETURN_IF_ERROR(
      Ask(options.target, control.get(), &v1::Control::Stub::SetLimits, request, &response));
  if (options.json) {
    std::fputs(MessageToJsonText(response).c_str(), stdout);
    return FlushStandardOutput();
  }
  const auto row = [](const char* name, uint32_t before, uint32_t now, uint32_t sealed) {
    return std::vector<std::string>{name, FormatCount(before), FormatCount(now),
                                    FormatCount(sealed)};
  };
  const v1::Limits& before = response.before();
  const v1::Limits& now = response.now();
  const v1::Limits& sealed = response.sealed();
  const std::string table = TextTable({
      {"limit", "before", "now", "started with"},
      row("max_num_seqs", before.max_num_seqs(), now.max_num_seqs(), sealed.max_num_seqs()),
      row("max_model_len", before.max_model_len(), now.max_model_len(), sealed.max_model_len()),
      row("max_num_queued_reqs", before.max_num_queued_reqs(), now.max_num_queued_reqs(),
          sealed.max_num_queued_reqs()),
  });
  std::fputs(table.c_str(), stdout);
  return FlushStandardOutput();
}

}  // namespace bulkhead
