// The requests of a benchmark. Pure, except reading files: the same seed gives the same requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bulkhead/v1/generation.pb.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

// Properties of the server that a data set depends on.
struct DatasetFacts {
  uint32_t vocab_size = 32000;
  int max_model_len = 0;           // 0: not known
  std::vector<uint32_t> text_ids;  // the built-in text's tokens; for DatasetName::kText
  int64_t client_bytes = 0;        // memory limit of prompts and records; 0: none
};

struct BenchPrompts {
  std::vector<v1::GenerateRequest> requests;
  std::vector<double> due_s;  // of a trace: seconds since its first line; else empty
};

// The requests of run `run` (each --repeats its own, so that no prompt is found in the prefix
// cache). INVALID_ARGUMENT with exit code 2 names the line of a file, or the flags that together
// are longer than the model allows or need more than `client_bytes`.
absl::StatusOr<BenchPrompts> MakePrompts(const DatasetOptions& options, const DatasetFacts& facts,
                                         int run);

// A text of our own, some pages long.
absl::string_view BuiltInText();

}  // namespace bulkhead
