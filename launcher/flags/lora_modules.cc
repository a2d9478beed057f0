#include "launcher/flags/lora_modules.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/json.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsJson(absl::string_view text) { return absl::StartsWith(text, "{"); }

absl::StatusOr<LoraModule> ParseLoraJson(const std::string& text) {
  BH_ASSIGN_OR_RETURN(const nlohmann::json object,
                      ParseJsonObject(text, "the JSON object", {.max_depth = 4, .max_values = 16}));
  LoraModule module;
  const std::pair<const char*, std::string*> fields[] = {
      {"name", &module.name}, {"path", &module.dir}, {"base_model_name", &module.base_model_name}};
  for (const auto& item : object.items()) {
    const std::string& key = item.key();
    const nlohmann::json& value = item.value();
    const auto* const field =
        absl::c_find_if(fields, [&](const auto& one) { return key == one.first; });
    if (field == std::end(fields)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key '", key, "'; known are name, path, base_model_name"));
    }
    if (value.is_string()) *field->second = value.get<std::string>();
    if (value.is_string() || (value.is_null() && field->second == &module.base_model_name))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", JsonExcerpt(value), " is not a string"));
  }
  return module;
}

LoraModule ParseLoraPair(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  return {.name = parts.first, .dir = parts.second};
}

absl::Status AddLoraModule(LoraModule module, absl::string_view text,
                           std::vector<LoraModule>& modules) {
  if (module.name.empty() || module.dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has no ", module.name.empty() ? "name" : "folder",
                     "; write NAME=DIR, or {\"name\": \"NAME\", \"path\": \"DIR\"}"));
  }
  const bool is_printable = IsValidUtf8(module.name) && absl::c_none_of(module.name, [](char c) {
                              return absl::ascii_iscntrl(c);
                            });
  if (!is_printable || module.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(module.name.substr(0, kMaxNameBytes)), "' is not a name of up to ",
        kMaxNameBytes, " bytes of UTF-8 without control characters"));
  }
  if (absl::c_any_of(modules, [&](const LoraModule& one) { return one.name == module.name; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", module.name, "' is named twice; give each adapter a name of its own"));
  }
  if (modules.size() == kMaxLoraModules) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", module.name, "' exceeds the limit of ", kMaxLoraModules,
                     " adapters; leave some out, or start another server for them"));
  }
  modules.push_back(std::move(module));
  return absl::OkStatus();
}

}  // namespace

Flags::Apply LoraModulesValue(std::vector<LoraModule>* modules) {
  Flags::Apply apply = [=](const std::string& text) -> absl::Status {
    if (IsJson(text)) {
      BH_ASSIGN_OR_RETURN(LoraModule module, ParseLoraJson(text));
      return AddLoraModule(std::move(module), text, *modules);
    }
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      BH_RETURN_IF_ERROR(AddLoraModule(ParseLoraPair(part), part, *modules));
    }
    return absl::OkStatus();
  };
  apply.appends = true;
  apply.takes_next = [](absl::string_view word) {
    return IsJson(word) || absl::StrContains(word, '=');
  };
  return apply;
}

absl::Status CheckLoraModules(const EngineOptions& engine,
                              const std::vector<std::string>& served_model_names) {
  std::vector<std::string> names = served_model_names;
  if (names.empty()) names = {engine.model};
  for (const LoraModule& module : engine.lora_modules) {
    if (absl::c_linear_search(names, module.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--lora-modules: '", module.name, "' is the model's own name; give the adapter another"));
    }
    const std::string& base = module.base_model_name;
    if (!base.empty() && !absl::c_linear_search(names, base)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--lora-modules: '", module.name, "' has the base_model_name '", base,
                       "', but the model's name is ", absl::StrJoin(names, " or "),
                       "; leave base_model_name out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
