#include "runtime/chat/jinja/template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/ast.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/parser.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

int64_t BytesOf(const nlohmann::ordered_json& json) {
  int64_t bytes = 8;
  if (json.is_string()) bytes += static_cast<int64_t>(json.get_ref<const std::string&>().size());
  if (json.is_array()) {
    for (const nlohmann::ordered_json& each : json) bytes += BytesOf(each);
  } else if (json.is_object()) {
    for (const auto& [key, each] : json.items()) {
      bytes += static_cast<int64_t>(key.size()) + BytesOf(each);
    }
  }
  return bytes;
}

}  // namespace

Template::Template() = default;
Template::~Template() = default;

absl::StatusOr<std::shared_ptr<const Template>> Template::Parse(absl::string_view text,
                                                                absl::string_view source) {
  if (static_cast<int64_t>(text.size()) > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": ", text.size(), " bytes; a template has at most ", kMaxTemplateBytes));
  }
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError(absl::StrCat(source, ": is not UTF-8"));
  absl::StatusOr<std::unique_ptr<const Root>> root = ParseTemplate(text);
  if (!root.ok()) {
    return absl::Status(root.status().code(), absl::StrCat(source, ": ", root.status().message()));
  }
  std::shared_ptr<Template> parsed(new Template());
  parsed->text_ = std::string(text);
  parsed->source_ = std::string(source);
  parsed->root_ = *std::move(root);
  return std::shared_ptr<const Template>(std::move(parsed));
}

absl::StatusOr<std::string> Template::Render(const nlohmann::ordered_json& context,
                                             const Limits& limits, absl::Time now) const {
  if (!context.is_object()) return absl::InvalidArgumentError("variables must be an object");
  Meter meter(limits, BytesOf(context));
  Evaluator evaluator(&meter, now);
  BH_ASSIGN_OR_RETURN(Value variables, FromJson(context, &meter));
  absl::StatusOr<std::string> text = evaluator.Run(*root_, std::move(variables));
  if (text.ok() || text.status().message().substr(0, 5) != "line ") return text;
  return absl::Status(text.status().code(), absl::StrCat(source_, ": ", text.status().message()));
}

bool Template::reads_content_parts() const { return root_->reads_content_parts; }

}  // namespace bulkhead::jinja
