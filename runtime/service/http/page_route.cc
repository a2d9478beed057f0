// GET / and the files that its page loads.
#include <string>

#include "runtime/service/http/page/page_files.h"
#include "runtime/service/http/routes.h"

namespace bulkhead {

void ServePage(const HttpContext& /*context*/, HttpRequest request,
               const ExchangePointer& exchange) {
  for (const PageFile& file : PageFiles()) {
    if (file.path != request.path) continue;
    HttpAnswer answer;
    answer.content_type = std::string(file.content_type);
    // Only its own files and routes, and not inside another page.
    answer.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                       "'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
    answer.body.AddPart([text = file.text](std::string* out) mutable {
      const absl::string_view slice = text.substr(0, BodyParts::kSliceBytes);
      out->append(slice.data(), slice.size());
      text.remove_prefix(slice.size());
      return text.empty();
    });
    return exchange->Answer(std::move(answer), [](bool) {});
  }
}

}  // namespace bulkhead
