#include "runtime/service/http/allowed_origins.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kAny = "*";

}  // namespace

bool AllowedOrigins::Allows(absl::string_view origin) const {
  return !origin.empty() &&
         (absl::c_linear_search(origins_, origin) || absl::c_linear_search(origins_, kAny));
}

std::string AllowedOrigins::FieldsFor(absl::string_view origin) const {
  if (origins_.empty()) return "";
  // Caches must not give one origin's answer to another.
  std::string fields = "Vary: Origin\r\n";
  if (Allows(origin)) {
    absl::StrAppend(&fields, "Access-Control-Allow-Origin: ", origin,
                    "\r\nAccess-Control-Expose-Headers: *\r\n");
  }
  return fields;
}

bool AllowedOrigins::IsPreflight(const HttpRequest& request) const {
  return request.method == "OPTIONS" && request.asks_for_method && Allows(request.origin);
}

HttpAnswer AllowedOrigins::PreflightAnswer() {
  HttpAnswer answer;
  answer.content_type = "text/plain";
  // Credentials (cookies and certificates) are not allowed, so * stands for any field except, in
  // browsers, Authorization.
  answer.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                    {"Access-Control-Allow-Headers", "*, Authorization"},
                    {"Access-Control-Max-Age", "600"}};
  return answer;
}

}  // namespace bulkhead
