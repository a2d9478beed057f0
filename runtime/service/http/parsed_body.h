// ServeParsed: parses the body of a request and serves it: short bodies on the front end's thread,
// long ones on the text worker.
#pragma once

#include <functional>

#include "runtime/service/call_transport.h"
#include "runtime/service/http/json_fields.h"
#include "runtime/service/http/routes.h"

namespace bulkhead {

struct ParsedRequest {
  Json body;
  BodyClaim claim;  // covers what is made from the body
  RequestOrigin origin;
};

// `serve` answers; what it returns is answered as an error.
void ServeParsed(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange,
                 std::function<absl::Status(ParsedRequest parsed)> serve);

}  // namespace bulkhead
