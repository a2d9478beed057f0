// Ranks that divide the rows of a step among themselves: the tokens of one rank, for requests of
// every kind at once.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

const std::string kDir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";

std::vector<Request> Requests() {
  std::vector<SamplingParams> settings = {{.temperature = 0},
                                          {.temperature = 1},
                                          {.temperature = 0.7F, .top_p = 0.9F},
                                          {.temperature = 1, .top_k = 20},
                                          {.temperature = 1.3F, .top_p = 0.8F, .top_k = 50},
                                          {.temperature = 1, .min_p = 0.05F},
                                          {.temperature = 1, .top_p = 0.95F, .min_p = 1e-4F}};
  const std::vector<int32_t> all = ReadGolden(kDir).prompts[2];
  std::vector<Request> requests;
  for (size_t i = 0; i < 3 * settings.size(); ++i) {
    Request& request = requests.emplace_back();
    request.request_id = std::to_string(i);
    request.prompt.assign(all.begin(), all.begin() + 5 + i);
    request.sampling = settings[i % settings.size()];
    request.sampling.seed = 10 + i;
    if (i % 3 == 1) request.num_logprobs = static_cast<int>(i % 5);
    if (i % 4 == 2) request.logits.presence_penalty = 0.5F;
    request.stopping.max_tokens = 20;
    request.stopping.stop_token_ids = {7, 30, 100};
    request.stopping.min_tokens = static_cast<int>(i % 7);
    request.stopping.ignore_eos = true;
    request.wants_text = false;
  }
  return requests;
}

TEST(SharedSamplesOfAModel, AreTheTokensOfOneRank) {
  const std::vector<Request> requests = Requests();
  RigOptions options;
  const auto want = RunRequests(kDir, requests, 1, options);
  for (const int size : {2, 3, 4, 8}) {
    options.size = size;
    options.threads = size == 2 ? 2 : 1;
    EXPECT_EQ(RunRequests(kDir, requests, 1, options), want) << size;
  }
}

}  // namespace
}  // namespace bulkhead
