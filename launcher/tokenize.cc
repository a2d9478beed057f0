#include "launcher/tokenize.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "nlohmann/json.hpp"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {
namespace {

using nlohmann::json;

absl::StatusOr<bool> Flag(const json& line, const char* name) {
  const auto flag = line.find(name);
  if (flag == line.end() || flag->is_null()) return true;
  if (!flag->is_boolean()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is neither true nor false"));
  }
  return flag->get<bool>();
}

absl::StatusOr<json> Answer(const Tokenizer& tokenizer, const std::string& text) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  const auto prompt = line.find("text"), ids = line.find("ids");
  if ((prompt == line.end()) == (ids == line.end())) {
    return absl::InvalidArgumentError("the line needs one of \"text\" and \"ids\"");
  }
  const char* const given = ids == line.end() ? "text" : "ids";
  const char* const switched = ids == line.end() ? "add_special_tokens" : "skip_special_tokens";
  for (const auto& [key, value] : line.items()) {
    if (key == given || key == switched) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown key ", absl::Utf8SafeCEscape(key.substr(0, 64)), " beside \"", given, "\""));
  }
  BH_ASSIGN_OR_RETURN(const bool special, Flag(line, switched));
  if (prompt != line.end()) {
    if (!prompt->is_string()) return absl::InvalidArgumentError("\"text\" is not a string");
    BH_ASSIGN_OR_RETURN(const std::vector<int32_t> encoded,
                        tokenizer.Encode(prompt->get_ref<const std::string&>(), special));
    return json{{"ids", encoded}};
  }
  if (!ids->is_array()) return absl::InvalidArgumentError("\"ids\" is not an array");
  std::vector<int32_t> tokens;
  tokens.reserve(ids->size());
  for (const json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("\"ids\" has no token id in ", id.dump()));
    }
    if (id.get<int64_t>() >= tokenizer.vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(id.dump(), " is not an id of the tokenizer, which has ",
                       tokenizer.vocab_size(), " (0 to ", tokenizer.vocab_size() - 1, ")"));
    }
    tokens.push_back(id.get<int32_t>());
  }
  return json{{"text", tokenizer.Decode(tokens, special)}};
}

}  // namespace

absl::Status RunTokenize(const std::string& model_dir, std::istream& in, std::ostream& out) {
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(model_dir));
  int64_t num_lines = 0, num_failed = 0;
  for (std::string line; std::getline(in, line);) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    ++num_lines;
    absl::StatusOr<json> answer = Answer(*tokenizer, line);
    if (!answer.ok()) {
      ++num_failed;
      answer = json{{"error",
                     {{"code", absl::StatusCodeToString(answer.status().code())},
                      {"message", std::string(answer.status().message())}}}};
    }
    // Valid JSON, whatever a message quotes.
    out << answer->dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  }
  BH_RETURN_IF_ERROR(CheckStandardInput());
  out.flush();
  if (!out) return WithExitCode(absl::DataLossError("cannot write"), ExitCode::kClientError);
  if (num_failed == 0) return absl::OkStatus();
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(num_failed, " of ", num_lines,
                                                              " lines could not be answered")),
                      ExitCode::kClientError);
}

}  // namespace bulkhead
