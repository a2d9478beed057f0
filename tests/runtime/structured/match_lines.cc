// Random answers for structured_oracle_test.py: a line of JSON {kind, grammar, seed, answers,
// accepts} on standard input gives {texts, accepts, wrong_masks, unfinished} or {error, code} on
// standard output.
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "runtime/structured/matcher.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead::structured {
namespace {

using Json = nlohmann::ordered_json;

// All bytes, and tokens that cross the parts of JSON. The last id ends an answer.
std::vector<std::string> Vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"\":",
                           "\": ",
                           "\": \"",
                           "\",",
                           "\", \"",
                           "\"}",
                           "\"]",
                           "\"},",
                           "},{",
                           "}, {",
                           "}}",
                           "]]",
                           "[[",
                           "[{",
                           "{\"",
                           "[\"",
                           "[[[[",
                           "{\"a\": {\"a\"",
                           "\"a",
                           "\"b\"",
                           "\"a\":",
                           "\"name",
                           "null",
                           "tru",
                           "true",
                           "true,",
                           "false}",
                           "12",
                           "123",
                           "-1",
                           "0.",
                           ".5",
                           "00",
                           "1,",
                           "1]",
                           "e+",
                           "ab",
                           "abc",
                           "aaaa",
                           "a b",
                           " a",
                           "  ",
                           " \"",
                           "\\\"",
                           "\\u",
                           "\\ud83d\\ude00",
                           "\\n",
                           "\xc3\xa9",
                           "\xc3",
                           "\xf0\x9f\x98\x80",
                           "\xf0\x9f",
                           "\n",
                           "\t",
                           ", ",
                           ": ",
                           "abcdefghijklmnopqrstuvwxyz",
                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                           "                    ",
                           "\"}, {\"a\": \"b\", \"name\"",
                           "[1, 2, 3, 4, 5, 6, 7, 8]",
                           "2024-01-0"}) {
    tokens.emplace_back(text);
  }
  tokens.emplace_back();
  return tokens;
}

class Answers {
 public:
  Answers() : tokens_(Vocabulary()), trie_(tokens_) {}

  Json Of(const Json& request);

 private:
  absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const Json& request) const;
  absl::StatusOr<std::string> Walk(Matcher& matcher, std::mt19937& random);
  int32_t Choose(const std::vector<uint32_t>& mask, size_t written, std::mt19937& random) const;
  // Masks and Accept must agree.
  void CheckMask(const Matcher& matcher, const std::vector<uint32_t>& mask);
  int32_t end_id() const { return static_cast<int32_t>(tokens_.size()) - 1; }

  const std::vector<std::string> tokens_;
  const TokenTrie trie_;
  int wrong_masks_ = 0;
};

absl::StatusOr<std::shared_ptr<const Grammar>> Answers::Compile(const Json& request) const {
  const std::string kind = request["kind"].get<std::string>();
  if (kind == "choice") return ChoiceGrammar(request["grammar"].get<std::vector<std::string>>());
  if (kind == "regex") return RegexGrammar(request["grammar"].get<std::string>());
  if (kind == "json_object") return Grammar::Of({});
  return JsonSchemaGrammar(request["grammar"].dump());
}

bool IsSet(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[id / 32] >> (id % 32) & 1) != 0;
}

int32_t Answers::Choose(const std::vector<uint32_t>& mask, size_t written,
                        std::mt19937& random) const {
  std::vector<int32_t> allowed, closing;
  for (int32_t id = 0; id <= end_id(); ++id) {
    if (!IsSet(mask, id)) continue;
    allowed.push_back(id);
    const std::string& token = tokens_[id];
    const bool closes = token.empty() || token == "\"" || token == "}" || token == "]" ||
                        token == "\"}" || token == "\"]" || token == "}}" || token == "]]";
    if (closes) closing.push_back(id);
  }
  const bool close = written > 600 || random() % 400 < 20 + written;
  if (!closing.empty() && close) {
    if (IsSet(mask, end_id())) return end_id();
    return closing[random() % closing.size()];
  }
  // Rather printable ones.
  int32_t id = allowed[random() % allowed.size()];
  for (int i = 0; i < 3 && tokens_[id].size() == 1 && tokens_[id][0] < ' '; ++i) {
    id = allowed[random() % allowed.size()];
  }
  return id;
}

void Answers::CheckMask(const Matcher& matcher, const std::vector<uint32_t>& mask) {
  for (int32_t id = 0; id < end_id(); ++id) {
    Matcher copy(matcher);
    if (copy.Accept(id).ok() != IsSet(mask, id)) ++wrong_masks_;
  }
}

absl::StatusOr<std::string> Answers::Walk(Matcher& matcher, std::mt19937& random) {
  std::vector<uint32_t> mask((tokens_.size() + 31) / 32);
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    if (absl::Status filled = matcher.FillMask(absl::MakeSpan(mask)); !filled.ok()) return filled;
    if (random() % 64 == 0) CheckMask(matcher, mask);
    const int32_t id = Choose(mask, text.size(), random);
    if (absl::Status accepted = matcher.Accept(id); !accepted.ok()) return accepted;
    if (id == end_id()) return text;
    text += tokens_[id];
  }
  return std::string();
}

Json Answers::Of(const Json& request) {
  const auto failed = [](const absl::Status& status) {
    return Json{{"error", std::string(status.message())},
                {"code", absl::StatusCodeToString(status.code())}};
  };
  const absl::StatusOr<std::shared_ptr<const Grammar>> grammar = Compile(request);
  if (!grammar.ok()) return failed(grammar.status());
  // A small cache, so that it is dropped often.
  const auto automaton = std::make_shared<Automaton>(*grammar, &trie_, size_t{1} << 20);
  std::mt19937 random(request.value("seed", 1u));
  Json texts = Json::array(), accepts = Json::array();
  wrong_masks_ = 0;
  int unfinished = 0;
  for (int i = 0; i < request.value("answers", 0); ++i) {
    Matcher matcher(automaton, {end_id()});
    const absl::StatusOr<std::string> text = Walk(matcher, random);
    if (!text.ok()) return failed(text.status());
    if (matcher.is_complete()) {
      texts.push_back(*text);
    } else {
      ++unfinished;
    }
  }
  for (const Json& text : request.value("accepts", Json::array())) {
    const int32_t place = automaton->AddPlace();
    const bool accepted = automaton->Advance(place, text.get<std::string>()).ok();
    accepts.push_back(accepted && automaton->is_complete(place));
    automaton->DropPlace(place);
  }
  return {{"texts", texts},
          {"accepts", accepts},
          {"wrong_masks", wrong_masks_},
          {"unfinished", unfinished}};
}

}  // namespace
}  // namespace bulkhead::structured

int main() {
  bulkhead::structured::Answers answers;
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = bulkhead::ParseOrderedJsonObject(line, "request", {.max_depth = 200});
    const nlohmann::ordered_json answer =
        request.ok() ? answers.Of(*request)
                     : nlohmann::ordered_json{{"error", std::string(request.status().message())},
                                              {"code", "request"}};
    std::cout << answer.dump(-1, ' ', true, nlohmann::json::error_handler_t::strict) << std::endl;
  }
}
