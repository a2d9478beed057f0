// A gRPC server of a test's own services, on a free port of this host.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace bulkhead {

class LocalServer {
 public:
  // The services outlive it.
  explicit LocalServer(std::initializer_list<grpc::Service*> services) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    for (grpc::Service* const service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    target_ = absl::StrCat("127.0.0.1:", port);
  }
  ~LocalServer() { Shutdown(); }

  void Shutdown() { server_->Shutdown(); }
  const std::string& target() const { return target_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

}  // namespace bulkhead
