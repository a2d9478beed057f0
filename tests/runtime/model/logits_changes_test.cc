// Penalties, biases and bans on a real model: the same tokens and log probabilities at any number
// of ranks, chunking, with a cached prefix, and when resumed.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

const std::string kDir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";

// One for each kind of change, all of them together, and none.
std::vector<Request> Requests() {
  std::vector<LogitsParams> changes(7);
  changes[0].repetition_penalty = 1.4F;
  changes[1].presence_penalty = 1.5F;
  changes[2].frequency_penalty = 0.75F;
  changes[3].bias = {{5, 4.0F}, {77, -9.0F}};
  for (TokenId id = 3; id < 200; id += 3) changes[4].allowed.push_back(id);
  changes[5] = changes[3];
  changes[5].repetition_penalty = 1.2F;
  changes[5].frequency_penalty = -0.5F;
  const std::vector<int32_t> all = ReadGolden(kDir).prompts[2];
  std::vector<Request> requests;
  for (const LogitsParams& logits : changes) {
    for (const float temperature : {0.0F, 0.8F}) {
      Request& request = requests.emplace_back();
      request.request_id = std::to_string(requests.size());
      request.prompt.assign(all.begin(), all.begin() + 9);
      request.sampling = {.temperature = temperature, .top_k = 0, .seed = 4};
      request.logits = logits;
      request.stopping.max_tokens = 24;
      request.stopping.ignore_eos = true;
      request.wants_text = false;
    }
  }
  return requests;
}

using Tokens = std::vector<std::vector<TokenId>>;

TEST(LogitsChanges, HaveTheSameTokensAtAnyNumberOfRanksAndInAnyChunks) {
  const std::vector<Request> requests = Requests();
  RigOptions options;
  const Tokens want = RunRequests(kDir, requests, 1, options);
  const Tokens plain(want.end() - 2, want.end());
  for (size_t i = 0; i + 2 < want.size(); ++i) EXPECT_NE(want[i], plain[i % 2]) << i;
  for (const int size : {2, 4, 8}) {
    options.size = size;
    EXPECT_EQ(RunRequests(kDir, requests, 1, options), want) << size;
  }
  options.size = 2;
  options.max_num_batched_tokens = 5;
  options.prefix_caching = true;
  EXPECT_EQ(RunRequests(kDir, requests, 1, options), want);
}

TEST(LogitsChanges, AreThoseOfTheWholeAnswerWhenItIsResumed) {
  std::vector<Request> requests = Requests();
  const RigOptions options;
  const Tokens want = RunRequests(kDir, requests, 1, options);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].emitted.assign(want[i].begin(), want[i].begin() + 1 + i);
  }
  const Tokens rest = RunRequests(kDir, requests, 1, options);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(rest[i], std::vector<TokenId>(want[i].begin() + 1 + i, want[i].end())) << i;
  }
}

}  // namespace
}  // namespace bulkhead
