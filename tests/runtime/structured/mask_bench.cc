// The time of a mask over a vocabulary of 128k tokens, for several grammars: mask_bench
// [VOCABULARY], a file of one JSON string per line; without it a vocabulary of made words.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/structured/matcher.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead::structured {
namespace {

constexpr size_t kVocabulary = 128'256;
constexpr int kRows = 64;
constexpr int kSteps = 200;

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

// Words with and without a space before, with what follows words in JSON; numbers; runs of spaces.
std::vector<std::string> MadeVocabulary() {
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 1000; ++i) tokens.push_back(std::to_string(i));
  for (int i = 1; i <= 128; ++i) tokens.emplace_back(i, ' ');
  for (const char* text :
       {"\"}", "\"},", "\":", "\",", "\": \"", "\", \"", "{\"", "[\"", "},",   "]}",
        "}}",  "]]",   " {",  " [",  "[[",     "{{",     "}\n", ".\"", ").\"", " \""}) {
    tokens.emplace_back(text);
  }
  static constexpr char kLetters[] = "etaoinshrdlucmfwypvbgkjqxzETAOINS";
  static constexpr const char* kEnds[] = {"",   "",    "",    "",  "",  "",  "",
                                          "\"", "\",", "\":", ".", ",", "()"};
  while (tokens.size() < kVocabulary) {
    std::string word = random() % 2 == 0 ? " " : "";
    const int length = 2 + static_cast<int>(random() % 9);
    for (int i = 0; i < length; ++i) {
      word += kLetters[std::min(random() % 33, random() % 33)];
    }
    if (random() % 10 == 0) word += "\xe6\x97\xa5";
    tokens.push_back(word + kEnds[random() % std::size(kEnds)]);
  }
  tokens.back().clear();  // the end
  return tokens;
}

struct Times {
  std::vector<double> mask, accept;  // us of a row
  std::vector<double> step;          // us of all rows
};

double At(std::vector<double> times, double quantile) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[std::min(times.size() - 1, static_cast<size_t>(quantile * times.size()))];
}

double Mean(const std::vector<double>& times) {
  double sum = 0;
  for (const double time : times) sum += time;
  return times.empty() ? 0 : sum / static_cast<double>(times.size());
}

int32_t AnyOf(const std::vector<uint32_t>& mask, std::mt19937& random) {
  const int32_t bits = static_cast<int32_t>(mask.size()) * 32;
  const int32_t start = static_cast<int32_t>(random() % bits);
  for (int32_t i = 0; i < bits; ++i) {
    const int32_t id = (start + i) % bits;
    if ((mask[id / 32] >> (id % 32) & 1) != 0) return id;
  }
  return -1;
}

void Run(const char* name, const absl::StatusOr<std::shared_ptr<const Grammar>>& grammar,
         const TokenTrie& trie) {
  if (!grammar.ok()) {
    std::printf("%s: %s\n", name, std::string(grammar.status().message()).c_str());
    return;
  }
  const auto automaton = std::make_shared<Automaton>(*grammar, &trie, size_t{64} << 20);
  const int32_t end = trie.vocab_size() - 1;
  std::vector<std::unique_ptr<Matcher>> rows;
  for (int i = 0; i < kRows; ++i)
    rows.push_back(std::make_unique<Matcher>(automaton, absl::Span<const int32_t>(&end, 1)));
  std::vector<uint32_t> mask((trie.vocab_size() + 31) / 32);
  std::mt19937 random(1);
  Times times;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (std::unique_ptr<Matcher>& row : rows) {
      auto since = Clock::now();
      if (absl::Status filled = row->FillMask(absl::MakeSpan(mask)); !filled.ok()) {
        std::printf("%s: %s\n", name, std::string(filled.message()).c_str());
        return;
      }
      times.mask.push_back(Microseconds(since));
      const int32_t id = AnyOf(mask, random);
      since = Clock::now();
      if (!row->Accept(id).ok()) std::abort();
      times.accept.push_back(Microseconds(since));
      total += times.mask.back() + times.accept.back();
      if (id == end) row = std::make_unique<Matcher>(automaton, absl::Span<const int32_t>(&end, 1));
    }
    times.step.push_back(total);
  }
  std::printf(
      "%-14s mask us: mean %.1f p50 %.1f p99 %.1f max %.0f; accept us: mean %.2f p99 %.1f; %d rows "
      "ms: "
      "mean %.3f p50 %.3f p99 %.3f max %.1f; masks made %ld; %.1f MiB\n",
      name, Mean(times.mask), At(times.mask, 0.5), At(times.mask, 0.99), At(times.mask, 1),
      Mean(times.accept), At(times.accept, 0.99), kRows, Mean(times.step) / 1000,
      At(times.step, 0.5) / 1000, At(times.step, 0.99) / 1000, At(times.step, 1) / 1000,
      static_cast<long>(automaton->num_masks_made()),
      static_cast<double>(automaton->bytes()) / (1 << 20));
}

}  // namespace
}  // namespace bulkhead::structured

int main(int argc, char** argv) {
  using namespace bulkhead::structured;
  std::vector<std::string> tokens;
  if (argc > 1) {
    std::ifstream file(argv[1]);
    for (std::string line; std::getline(file, line);) {
      tokens.push_back(nlohmann::json::parse(line).get<std::string>());
    }
    tokens.emplace_back();
  } else {
    tokens = MadeVocabulary();
  }
  const auto since = Clock::now();
  const TokenTrie trie(tokens);
  std::printf("%d tokens, trie of %.1f MiB made in %.0f ms\n", trie.vocab_size(),
              static_cast<double>(trie.bytes()) / (1 << 20), Microseconds(since) / 1000);
  Run("json_object", Grammar::Of({}), trie);
  Run("schema", JsonSchemaGrammar(R"({"type":"object","properties":{"name":{"type":"string"},
      "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":
      {"enum":["red","green","blue"]}},"children":{"type":"array","items":{"$ref":"#"}},
      "note":{"type":["string","null"]}},"required":["name","age","tags"]})"),
      trie);
  Run("max_length", JsonSchemaGrammar(R"({"type":"object","properties":{"a":{"type":"string",
      "maxLength":100},"b":{"type":"string","minLength":5,"maxLength":1000}},
      "required":["a","b"]})"),
      trie);
  Run("regex", RegexGrammar(R"((\w+ ){3,50}[A-Z][a-z]*\d{4}-\d{2}-\d{2}( .{10,200})?)"), trie);
  Run("choice", ChoiceGrammar(std::vector<std::string>{"positive", "negative", "neutral"}), trie);
}
