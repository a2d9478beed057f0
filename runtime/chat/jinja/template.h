// An interpreter of the part of Jinja2 that published chat templates are written in, with the
// environment of transformers' apply_chat_template: trim_blocks, lstrip_blocks, loop controls,
// {% generation %}, values that cannot be changed in place, tojson without HTML escapes,
// raise_exception and strftime_now. Values print as Python prints them. Differences from Jinja2
// 3.1: blocks, inheritance, imports, autoescape and i18n are refused by name; integers have 64
// bits.
// Reference: https://jinja.palletsprojects.com/en/3.1.x/templates/
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace bulkhead::jinja {

// Limits of one render. A render that reaches one ends with RESOURCE_EXHAUSTED, naming it.
struct Limits {
  int max_depth = 300;             // of nested calls, blocks and expressions
  int64_t max_steps = 20'000'000;  // nodes evaluated; 256 bytes handled also count as one
  int64_t max_output_bytes = 64 << 20;
  // Values alive at one time, output included: this, and 16 bytes for each byte of the context.
  int64_t max_value_bytes = 64 << 20;
};

// Bounds of parsing.
inline constexpr int64_t kMaxTemplateBytes = 4 << 20;
inline constexpr int kMaxParseDepth = 120;

struct Root;  // the parsed template, runtime/chat/jinja/ast.h

// Immutable; any number of threads may render at once.
class Template {
 public:
  // INVALID_ARGUMENT with `source`, line and reason; UNIMPLEMENTED for omitted features of Jinja2.
  static absl::StatusOr<std::shared_ptr<const Template>> Parse(absl::string_view text,
                                                               absl::string_view source);
  ~Template();

  // `context`: an object, the variables of the template. INVALID_ARGUMENT for an error of the
  // template, with its line, and for raise_exception, whose message is then the whole message of
  // the status. `now` is the local time of strftime_now.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& context,
                                     const Limits& limits = {}, absl::Time now = absl::Now()) const;

  const std::string& text() const { return text_; }
  // Whether it iterates over a message's content as a list: vLLM's "openai" content format.
  bool reads_content_parts() const;

 private:
  Template();
  std::string text_;
  std::string source_;
  std::unique_ptr<const Root> root_;
};

}  // namespace bulkhead::jinja
