#include "launcher/bench/serve/server_view.h"

#include <utility>

#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"

namespace bulkhead {

absl::StatusOr<ServerFacts> AskFacts(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::string& target) {
  using Control = v1::Control::Stub;
  const auto control = v1::Control::NewStub(channel);
  ServerFacts facts;
  BH_RETURN_IF_ERROR(Ask(target, control.get(), &Control::GetServerInfo, {}, &facts.server));
  BH_RETURN_IF_ERROR(Ask(target, control.get(), &Control::GetModelInfo, {}, &facts.model));
  BH_RETURN_IF_ERROR(Ask(target, control.get(), &Control::GetRankTable, {}, &facts.ranks));
  return facts;
}

absl::StatusOr<v1::LoadInfo> AskLoad(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::string& target) {
  const auto control = v1::Control::NewStub(channel);
  v1::LoadInfo load;
  BH_RETURN_IF_ERROR(Ask(target, control.get(), &v1::Control::Stub::GetLoad, {}, &load));
  return load;
}

absl::StatusOr<std::vector<uint32_t>> AskTokens(const std::shared_ptr<grpc::Channel>& channel,
                                                const std::string& target, absl::string_view text) {
  const auto generation = v1::Generation::NewStub(channel);
  v1::TokenizeRequest request;
  request.set_text(std::string(text));
  request.set_add_special_tokens(false);
  v1::TokenizeResponse response;
  BH_RETURN_IF_ERROR(
      Ask(target, generation.get(), &v1::Generation::Stub::Tokenize, request, &response));
  const auto& ids = response.token_ids().ids();
  return std::vector<uint32_t>(ids.begin(), ids.end());
}

}  // namespace bulkhead
