// How client and server authenticate each other: TLS, and an API key in every call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/flags/security_options.h"

namespace bulkhead {

struct ChannelSecurity {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string api_key;  // empty: none
};

// INVALID_ARGUMENT with exit code 2 if a flag requires another one that is missing.
absl::Status CheckTogether(const ClientCredentials& credentials);
// INVALID_ARGUMENT with exit code 2 naming the flag or file.
absl::StatusOr<ChannelSecurity> ReadCredentials(const ClientCredentials& credentials);

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target,
                                             const grpc::ChannelArguments& arguments,
                                             ChannelSecurity security);

}  // namespace bulkhead
