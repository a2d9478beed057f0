// What each metric of `bench serve` is, and what other tools call it.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

struct Definition {
  std::string name;     // as in result.json
  std::string formula;  // in words
  // What the same thing is called elsewhere; "-" where there is none, or another thing by the name.
  std::string vllm, guidellm, aiperf, mlperf;
};

const std::vector<Definition>& Definitions();

// The answer of `bench definitions`.
std::string DefinitionsText();

}  // namespace bulkhead
