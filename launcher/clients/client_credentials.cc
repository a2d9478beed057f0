#include "launcher/clients/client_credentials.h"

#include <grpcpp/support/client_interceptor.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "runtime/service/access/access_control.h"

namespace bulkhead {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;

// gRPC's own call credentials require TLS.
class KeySender final : public Interceptor {
 public:
  explicit KeySender(const std::string& authorization) : authorization_(authorization) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", authorization_);
    }
    methods->Proceed();
  }

 private:
  const std::string& authorization_;
};

class KeySenderFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeySenderFactory(const std::string& key)
      : authorization_(absl::StrCat("Bearer ", key)) {}
  Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new KeySender(authorization_);  // owned by gRPC
  }

 private:
  const std::string authorization_;
};

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  const char* why = nullptr;
  if (text.ok() && !absl::StrContains(*text, "-----BEGIN ")) why = "is not in PEM form";
  if (text.ok() && why == nullptr) return text;
  return WithExitCode(absl::InvalidArgumentError(
                          why != nullptr ? absl::StrCat(flag, ": ", path, " ", why)
                                         : absl::StrCat(flag, ": ", text.status().message())),
                      ExitCode::kUsage);
}

}  // namespace

absl::Status CheckTogether(const ClientCredentials& credentials) {
  const bool has_one = credentials.ssl_certfile.has_value() || credentials.ssl_keyfile.has_value();
  const bool has_both = credentials.ssl_certfile.has_value() && credentials.ssl_keyfile.has_value();
  if (!has_one || (has_both && credentials.ssl_ca_certs.has_value())) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(
          has_both ? "--ssl-certfile needs a server with TLS; also give --ssl-ca-certs, "
                     "the authority of the server's certificate"
                   : "--ssl-certfile and --ssl-keyfile belong together; give both, "
                     "or none"),
      ExitCode::kUsage);
}

absl::StatusOr<ChannelSecurity> ReadCredentials(const ClientCredentials& credentials) {
  BH_RETURN_IF_ERROR(CheckTogether(credentials));
  ChannelSecurity security;
  BH_ASSIGN_OR_RETURN(security.api_key,
                      ReadClientKey(credentials.api_key_file, std::getenv(kApiKeyVariable)));
  if (!credentials.ssl_ca_certs.has_value()) {
    security.channel = grpc::InsecureChannelCredentials();
    return security;
  }
  grpc::SslCredentialsOptions options;
  BH_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("--ssl-ca-certs", *credentials.ssl_ca_certs));
  if (credentials.ssl_certfile.has_value()) {
    BH_ASSIGN_OR_RETURN(options.pem_cert_chain,
                        ReadPem("--ssl-certfile", *credentials.ssl_certfile));
    BH_ASSIGN_OR_RETURN(options.pem_private_key,
                        ReadPem("--ssl-keyfile", *credentials.ssl_keyfile));
  }
  security.channel = grpc::SslCredentials(options);
  return security;
}

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target,
                                             const grpc::ChannelArguments& arguments,
                                             ChannelSecurity security) {
  if (security.api_key.empty()) {
    return grpc::CreateCustomChannel(target, security.channel, arguments);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<KeySenderFactory>(security.api_key));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      target, security.channel, arguments, std::move(interceptors));
}

}  // namespace bulkhead
