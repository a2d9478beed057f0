// Renders templates for jinja_oracle_test.py: a line of JSON {template, context, limits} on
// standard input gives one of {text} or {error, code} on standard output.
#include <iostream>
#include <string>

#include "base/ordered_json.h"
#include "runtime/chat/jinja/template.h"

namespace bulkhead::jinja {
namespace {

nlohmann::ordered_json Answer(const std::string& line) {
  const auto failed = [](const absl::Status& status) {
    return nlohmann::ordered_json{{"error", std::string(status.message())},
                                  {"code", absl::StatusCodeToString(status.code())}};
  };
  auto request = ParseOrderedJsonObject(line, "request", {.max_depth = 200});
  if (!request.ok()) return failed(request.status());
  const auto parsed = Template::Parse((*request)["template"].get<std::string>(), "template");
  if (!parsed.ok()) return failed(parsed.status());
  Limits limits;
  limits.max_steps = request->value("max_steps", limits.max_steps);
  const auto text = (*parsed)->Render((*request)["context"], limits);
  if (!text.ok()) return failed(text.status());
  return {{"text", *text}};
}

}  // namespace
}  // namespace bulkhead::jinja

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << bulkhead::jinja::Answer(line).dump(-1, ' ', true,
                                                    nlohmann::json::error_handler_t::replace)
              << std::endl;
  }
}
