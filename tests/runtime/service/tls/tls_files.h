// A server's certificate and key for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

// Made once by the openssl command.
inline const TlsFiles& TestTlsFiles() {
  static const TlsFiles* const files = [] {
    auto* const made = new TlsFiles{.certfile = testing::TempDir() + "tls_test.pem",
                                    .keyfile = testing::TempDir() + "tls_test.key"};
    const std::string command = absl::StrCat(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "
        "/CN=localhost -keyout ",
        made->keyfile, " -out ", made->certfile, " 2>/dev/null && chmod 600 ", made->keyfile);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return made;
  }();
  return *files;
}

}  // namespace bulkhead
