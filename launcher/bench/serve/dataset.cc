#include "launcher/bench/serve/dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/prompts.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

constexpr int kDefaultPrompts = 1000;
constexpr int kTraceBlock = 512;  // tokens per hash_id of a trace
constexpr int kMaxTokens = 1 << 24;
constexpr double kMsPerS = 1e3;
constexpr double kLongestTraceS = 7 * 24 * 3600.0;
// A request's memory in this process: its prompt's ids in a list that grew by doubling, one arrival
// per token of its answer, and the rest of its request and record.
constexpr int64_t kPromptTokenBytes = 8;
constexpr int64_t kAnswerTokenBytes = 16;
constexpr int64_t kRequestBytes = 1024;

absl::Status Usage(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

using Random = std::mt19937_64;

// A separate random stream per use, so that an additional draw in one does not change another.
Random RandomOf(uint64_t seed, uint64_t run, uint64_t use) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                         static_cast<uint32_t>(run), static_cast<uint32_t>(use),
                         static_cast<uint32_t>(use >> 32)};
  return Random(sequence);
}

int Shortest(int len, double ratio) {
  return std::max(1, static_cast<int>(std::floor(len * (1 - ratio))));
}
int Longest(int len, double ratio) { return static_cast<int>(std::ceil(len * (1 + ratio))); }

int DrawLength(int len, double ratio, Random& random) {
  return std::uniform_int_distribution<int>(Shortest(len, ratio), Longest(len, ratio))(random);
}

void AppendRandomIds(int count, uint32_t vocab_size, Random& random, v1::TokenIds* ids) {
  std::uniform_int_distribution<uint32_t> draw(0, vocab_size - 1);
  for (int i = 0; i < count; ++i) ids->add_ids(draw(random));
}

void SetGeneration(const DatasetOptions& options, int output_len, v1::GenerateRequest* request) {
  request->mutable_sampling()->set_temperature(options.temperature);
  request->mutable_stopping()->set_max_tokens(output_len);
  request->mutable_stopping()->set_ignore_eos(options.ignore_eos.value_or(true));
}

int64_t BytesOf(int64_t input_len, int64_t output_len) {
  return kRequestBytes + kPromptTokenBytes * input_len + kAnswerTokenBytes * output_len;
}

absl::Status CheckMemory(int64_t requests, double bytes, const DatasetFacts& facts) {
  if (facts.client_bytes == 0 || bytes <= static_cast<double>(facts.client_bytes)) {
    return absl::OkStatus();
  }
  return Usage(absl::StrCat(
      requests, " requests of these lengths take ", FormatBytes(static_cast<int64_t>(bytes)),
      " of the client's memory; half of what is free is ", FormatBytes(facts.client_bytes),
      ": lower --num-prompts, and say --repeats for more"));
}

absl::Status CheckLengths(const DatasetOptions& options, const DatasetFacts& facts) {
  const int input = options.prefix_len + Longest(options.input_len, options.range_ratio);
  const int output = Longest(options.output_len, options.range_ratio);
  if (facts.max_model_len == 0 || input + output <= facts.max_model_len) return absl::OkStatus();
  return Usage(absl::StrCat(
      "prompts of up to ", input, " tokens and answers of up to ", output, " need max_model_len ",
      input + output, "; the server's is ", facts.max_model_len,
      ": lower --random-input-len or --random-output-len, or serve with a larger "
      "--max-model-len"));
}

// Random ids or the built-in text, after a prefix shared by all prompts or by those of a group.
BenchPrompts MakeSynthetic(const DatasetOptions& options, const DatasetFacts& facts, int run) {
  const int groups = options.name == DatasetName::kPrefixRepetition ? options.num_prefixes : 1;
  BenchPrompts prompts;
  Random lengths = RandomOf(options.seed, run, 1);
  Random ids = RandomOf(options.seed, run, 2);
  const int count = options.num_prompts.value_or(kDefaultPrompts);
  for (int i = 0; i < count; ++i) {
    v1::GenerateRequest& request = prompts.requests.emplace_back();
    v1::TokenIds& prompt = *request.mutable_token_ids();
    const int input_len = DrawLength(options.input_len, options.range_ratio, lengths);
    SetGeneration(options, DrawLength(options.output_len, options.range_ratio, lengths), &request);
    if (options.prefix_len > 0) {
      Random prefix = RandomOf(options.seed, run, 16 + i % groups);
      AppendRandomIds(options.prefix_len, facts.vocab_size, prefix, &prompt);
    }
    if (options.name != DatasetName::kText) {
      AppendRandomIds(input_len, facts.vocab_size, ids, &prompt);
      continue;
    }
    const size_t size = facts.text_ids.size();
    const size_t begin = std::uniform_int_distribution<size_t>(0, size - 1)(ids);
    for (int k = 0; k < input_len; ++k) prompt.add_ids(facts.text_ids[(begin + k) % size]);
  }
  return prompts;
}

absl::StatusOr<BenchPrompts> ReadCustom(const DatasetOptions& options, const DatasetFacts& facts) {
  v1::GenerateRequest defaults;
  defaults.mutable_sampling()->set_temperature(options.temperature);
  defaults.mutable_stopping()->set_max_tokens(options.output_len);
  if (options.ignore_eos.has_value()) {
    defaults.mutable_stopping()->set_ignore_eos(*options.ignore_eos);
  }
  BH_ASSIGN_OR_RETURN(const PromptLines lines,
                      ReadPrompts(*options.path, defaults, "--dataset-path"));
  if (lines.empty()) {
    return Usage(absl::StrCat("--dataset-path ", *options.path, " holds no prompt"));
  }
  BenchPrompts prompts;
  double bytes = 0;
  const int count = options.num_prompts.value_or(static_cast<int>(lines.size()));
  for (int i = 0; i < count; ++i) {
    const auto& line = lines[i % lines.size()].request;
    if (!line.ok()) {
      return Usage(absl::StrCat("--dataset-path ", *options.path, ": ", line.status().message()));
    }
    // No answer is longer than the model allows, whatever a line asks for.
    const int64_t most_tokens = line->stopping().max_tokens();
    bytes += static_cast<double>(BytesOf(0, std::min<int64_t>(most_tokens, facts.max_model_len))) +
             static_cast<double>(line->SpaceUsedLong());
    BH_RETURN_IF_ERROR(CheckMemory(i + 1, bytes, facts));
    prompts.requests.push_back(*line);
  }
  return prompts;
}

// One line of a trace: {"timestamp": ms, "input_length", "output_length"[, "hash_ids": [..]]}.
struct TraceLine {
  double time_ms = 0;
  int input_len = 0;
  int output_len = 0;
  std::vector<uint64_t> hash_ids;
};

absl::StatusOr<TraceLine> ParseTraceLine(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  TraceLine line;
  const auto time = json.find("timestamp");
  if (time == json.end() || !time->is_number() || time->get<double>() < 0) {
    return absl::InvalidArgumentError("\"timestamp\" must be a number of milliseconds from 0 on");
  }
  line.time_ms = time->get<double>();
  for (const auto& [key, out] :
       {std::pair("input_length", &line.input_len), std::pair("output_length", &line.output_len)}) {
    const auto value = json.find(key);
    if (value == json.end() || !value->is_number_integer() || value->get<int64_t>() < 1 ||
        value->get<int64_t>() > kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", key, "\" must be a number of tokens from 1 to ", kMaxTokens));
    }
    *out = value->get<int>();
  }
  const auto hashes = json.find("hash_ids");
  if (hashes == json.end()) return line;
  if (!hashes->is_array()) return absl::InvalidArgumentError("\"hash_ids\" must be a list");
  for (const auto& hash : *hashes) {
    if (!hash.is_number_unsigned()) {
      return absl::InvalidArgumentError("\"hash_ids\" must hold whole numbers from 0 on");
    }
    line.hash_ids.push_back(hash.get<uint64_t>());
  }
  return line;
}

v1::GenerateRequest TraceRequest(const DatasetOptions& options, const DatasetFacts& facts,
                                 const TraceLine& line, int run, Random& random) {
  v1::GenerateRequest request;
  SetGeneration(options, line.output_len, &request);
  v1::TokenIds& ids = *request.mutable_token_ids();
  for (size_t block = 0; ids.ids_size() < line.input_len; ++block) {
    const int count = std::min(kTraceBlock, line.input_len - ids.ids_size());
    if (block < line.hash_ids.size()) {
      Random shared = RandomOf(options.seed, run, (uint64_t{1} << 32) + line.hash_ids[block]);
      AppendRandomIds(count, facts.vocab_size, shared, &ids);
    } else {
      AppendRandomIds(count, facts.vocab_size, random, &ids);
    }
  }
  return request;
}

absl::StatusOr<BenchPrompts> ReadTrace(const DatasetOptions& options, const DatasetFacts& facts,
                                       int run) {
  BH_ASSIGN_OR_RETURN(std::ifstream file, OpenToRead("--dataset-path", *options.path));
  Random random = RandomOf(options.seed, run, 2);
  BenchPrompts prompts;
  std::string text;
  std::optional<double> first_ms;
  double bytes = 0;
  const size_t most = options.num_prompts.value_or(std::numeric_limits<int>::max());
  for (int number = 1; prompts.requests.size() < most && std::getline(file, text); ++number) {
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    const absl::StatusOr<TraceLine> line = ParseTraceLine(text);
    absl::Status status = line.status();
    if (status.ok() && facts.max_model_len > 0 &&
        line->input_len + line->output_len > facts.max_model_len) {
      status = absl::InvalidArgumentError(absl::StrCat("needs max_model_len ",
                                                       line->input_len + line->output_len,
                                                       "; the server's is ", facts.max_model_len));
    }
    const double last_s = prompts.due_s.empty() ? 0 : prompts.due_s.back();
    const double due_s = !line.ok() ? 0
                                    : (line->time_ms - first_ms.value_or(line->time_ms)) / kMsPerS /
                                          options.trace_speed;
    if (status.ok() && due_s < last_s) {
      status = absl::InvalidArgumentError("goes back in time; sort the trace by \"timestamp\"");
    }
    if (status.ok() && due_s > kLongestTraceS) {
      status = absl::InvalidArgumentError(
          absl::StrCat("is due ", due_s, " s after the first line, more than a week (",
                       kLongestTraceS, " s); cut the trace, or raise --trace-speed"));
    }
    if (status.ok()) {
      bytes += static_cast<double>(BytesOf(line->input_len, line->output_len));
      status = CheckMemory(static_cast<int64_t>(prompts.requests.size()) + 1, bytes, facts);
    }
    if (!status.ok()) {
      return Usage(absl::StrCat(*options.path, ":", number, ": ", status.message()));
    }
    if (!first_ms.has_value()) first_ms = line->time_ms;
    prompts.due_s.push_back(due_s);
    prompts.requests.push_back(TraceRequest(options, facts, *line, run, random));
  }
  if (prompts.requests.empty()) {
    return Usage(absl::StrCat("--dataset-path ", *options.path, " holds no request"));
  }
  return prompts;
}

}  // namespace

absl::StatusOr<BenchPrompts> MakePrompts(const DatasetOptions& options, const DatasetFacts& facts,
                                         int run) {
  switch (options.name) {
    case DatasetName::kCustom:
      return ReadCustom(options, facts);
    case DatasetName::kTrace:
      return ReadTrace(options, facts, run);
    case DatasetName::kText:
      if (facts.text_ids.empty()) {
        return Usage("--dataset-name text needs a server with a tokenizer; use random");
      }
      break;
    case DatasetName::kRandom:
    case DatasetName::kPrefixRepetition:
      break;
  }
  BH_RETURN_IF_ERROR(CheckLengths(options, facts));
  const int64_t count = options.num_prompts.value_or(kDefaultPrompts);
  const int64_t each = BytesOf(options.prefix_len + options.input_len, options.output_len);
  BH_RETURN_IF_ERROR(
      CheckMemory(count, static_cast<double>(count) * static_cast<double>(each), facts));
  return MakeSynthetic(options, facts, run);
}

}  // namespace bulkhead
