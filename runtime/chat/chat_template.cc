#include "runtime/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ordered_json.h"
#include "base/status.h"
#include "base/whole_file.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kMaxNamedTemplates = 64;

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

absl::StatusOr<std::string> ReadTemplateFile(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (!error && bytes > static_cast<uintmax_t>(jinja::kMaxTemplateBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", bytes, " bytes; at most ", jinja::kMaxTemplateBytes));
  }
  return ReadWholeFile(path);
}

absl::StatusOr<ordered_json> ReadConfig(const std::string& path) {
  if (!IsFile(path)) return ordered_json::object();
  BH_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path));
  return ParseOrderedJsonObject(text, path);
}

// A special token: a string, or an object with "content".
ordered_json TokenText(const ordered_json& token) {
  if (token.is_string()) return token;
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"];
  }
  return nullptr;
}

// `config` is tokenizer_config.json, `older` special_tokens_map.json, for tokens missing there.
ordered_json SpecialTokens(const ordered_json& config, const ordered_json& older) {
  ordered_json tokens = ordered_json::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const ordered_json& source = config.contains(name) ? config : older;
    if (!source.contains(name)) continue;
    ordered_json text = TokenText(source[name]);
    if (!text.is_null()) tokens[name] = std::move(text);
  }
  return tokens;
}

// The templates of a folder by name.
using Texts = std::vector<std::pair<std::string, std::string>>;

void Put(Texts* texts, const std::string& name, std::string text) {
  for (auto& [each, old] : *texts) {
    if (each != name) continue;
    old = std::move(text);
    return;
  }
  texts->emplace_back(name, std::move(text));
}

// "chat_template" of a JSON file: a text or a list of {name, template}.
absl::Status AddFromConfig(const ordered_json& config, absl::string_view source, Texts* texts) {
  if (!config.contains("chat_template") || config["chat_template"].is_null()) {
    return absl::OkStatus();
  }
  const ordered_json& field = config["chat_template"];
  if (field.is_string()) {
    Put(texts, "default", field.get<std::string>());
    return absl::OkStatus();
  }
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat(source, ": chat_template is neither a text nor a list of at most ",
                   kMaxNamedTemplates, " {\"name\", \"template\"}"));
  if (!field.is_array() || field.size() > kMaxNamedTemplates) return wrong;
  for (const ordered_json& each : field) {
    if (!each.is_object() || !each.contains("name") || !each["name"].is_string() ||
        !each.contains("template") || !each["template"].is_string()) {
      return wrong;
    }
    Put(texts, each["name"].get<std::string>(), each["template"].get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status AddFromFiles(const std::string& dir, Texts* texts) {
  const std::string main = absl::StrCat(dir, "/chat_template.jinja");
  if (IsFile(main)) {
    BH_ASSIGN_OR_RETURN(std::string text, ReadTemplateFile(main));
    Put(texts, "default", std::move(text));
  }
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator at(absl::StrCat(dir, "/additional_chat_templates"), error), end;
       !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".jinja") paths.push_back(at->path().string());
    if (paths.size() > kMaxNamedTemplates) {
      return absl::InvalidArgumentError(absl::StrCat(dir, "/additional_chat_templates: more than ",
                                                     kMaxNamedTemplates, " files"));
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    BH_ASSIGN_OR_RETURN(std::string text, ReadTemplateFile(path));
    Put(texts, fs::path(path).stem().string(), std::move(text));
  }
  return absl::OkStatus();
}

std::string Names(const Texts& texts) {
  return absl::StrJoin(texts, ", ", [](std::string* out, const auto& each) { *out += each.first; });
}

absl::Status NoTemplate(const std::string& dir) {
  return absl::NotFoundError(
      absl::StrCat(dir,
                   " has no chat template (no chat_template.jinja, and no chat_template in "
                   "tokenizer_config.json): it may be a base model"));
}

// The texts of DIR: files take precedence over tokenizer_config.json.
absl::StatusOr<Texts> TextsOf(const std::string& dir, const ordered_json& config) {
  Texts texts;
  BH_RETURN_IF_ERROR(AddFromFiles(dir, &texts));
  if (!texts.empty()) return texts;
  const std::string source = absl::StrCat(dir, "/tokenizer_config.json");
  BH_RETURN_IF_ERROR(AddFromConfig(config, source, &texts));
  if (!texts.empty()) return texts;
  const std::string older = absl::StrCat(dir, "/chat_template.json");
  BH_ASSIGN_OR_RETURN(ordered_json processor, ReadConfig(older));
  BH_RETURN_IF_ERROR(AddFromConfig(processor, older, &texts));
  return texts;
}

}  // namespace

absl::Status ChatTemplate::Add(const std::string& name, absl::string_view text,
                               absl::string_view source) {
  BH_ASSIGN_OR_RETURN(templates_[name], jinja::Template::Parse(text, source));
  return absl::OkStatus();
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view text, absl::string_view source) {
  ChatTemplate result;
  result.source_ = std::string(source);
  BH_RETURN_IF_ERROR(result.Add("default", text, source));
  return result;
}

absl::StatusOr<const jinja::Template*> ChatTemplate::Choose(bool has_tools) const {
  const auto standard = templates_.find("default");
  const auto tool_use = templates_.find("tool_use");
  if (has_tools && tool_use != templates_.end()) return tool_use->second.get();
  if (standard != templates_.end()) return standard->second.get();
  std::vector<std::string> names;
  for (const auto& [name, parsed] : templates_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return absl::InvalidArgumentError(absl::StrCat(source_, " has no template named default, only ",
                                                 absl::StrJoin(names, ", "),
                                                 "; choose one with --chat-template NAME"));
}

absl::string_view ChatTemplate::text(bool has_tools) const {
  const absl::StatusOr<const jinja::Template*> chosen = Choose(has_tools);
  return chosen.ok() ? absl::string_view((*chosen)->text()) : absl::string_view();
}

absl::StatusOr<ChatTemplate> LoadChatTemplate(const std::string& model_dir,
                                              const std::string& choice) {
  BH_ASSIGN_OR_RETURN(ordered_json config, ReadConfig(model_dir + "/tokenizer_config.json"));
  BH_ASSIGN_OR_RETURN(ordered_json older, ReadConfig(model_dir + "/special_tokens_map.json"));
  ChatTemplate result;
  result.special_tokens_ = SpecialTokens(config, older);
  if (!choice.empty() && IsFile(choice)) {
    BH_ASSIGN_OR_RETURN(std::string text, ReadTemplateFile(choice));
    result.source_ = choice;
    BH_RETURN_IF_ERROR(result.Add("default", text, choice));
    return result;
  }
  BH_ASSIGN_OR_RETURN(Texts texts, TextsOf(model_dir, config));
  if (texts.empty() && choice.empty()) return NoTemplate(model_dir);
  result.source_ = model_dir;
  if (!choice.empty()) {
    for (const auto& [name, text] : texts) {
      if (name != choice) continue;
      BH_RETURN_IF_ERROR(result.Add("default", text, absl::StrCat("chat template ", name)));
      return result;
    }
    return absl::NotFoundError(absl::StrCat(
        "--chat-template ", choice, " is no file, and ", model_dir, " has ",
        texts.empty() ? "no template" : absl::StrCat("only these templates: ", Names(texts))));
  }
  for (const auto& [name, text] : texts) {
    BH_RETURN_IF_ERROR(result.Add(
        name, text, name == "default" ? "chat template" : absl::StrCat("chat template ", name)));
  }
  BH_RETURN_IF_ERROR(result.Choose(false).status());
  return result;
}

}  // namespace bulkhead
