// AllowedOrigins: the other origins whose pages may read answers and send requests (CORS), as
// browsers name them in Origin: SCHEME://HOST[:PORT].
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/service/http/http_message.h"

namespace bulkhead {

class AllowedOrigins {
 public:
  // In lower case; "*" is any. Without one nothing is added to answers.
  explicit AllowedOrigins(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // Header fields, each with its end of line, for answers to a request with that Origin ("": none).
  std::string FieldsFor(absl::string_view origin) const;
  // The OPTIONS request that a browser sends before a request, without its API key.
  bool IsPreflight(const HttpRequest& request) const;
  static HttpAnswer PreflightAnswer();

 private:
  bool Allows(absl::string_view origin) const;

  const std::vector<std::string> origins_;
};

}  // namespace bulkhead
