// States of linear attention on emulated CUDA devices: saved and restored with the prefix cache,
// left and computed again by preemption, in steps of any batch and while two of them are in flight.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/runtime/model/emulated_rig.h"

namespace bulkhead {
namespace {

std::string DirOf(const std::string& model) {
  return std::string(BH_TEST_DATA) + "/models/" + model;
}

RigOptions OnDevices(int size) {
  RigOptions options;
  options.size = size;
  options.kv_format = KvFormat::kBF16;
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  return options;
}

class CudaStates : public testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaStates,
                         testing::Values(std::tuple("qwen3_5_bf16", 1),
                                         std::tuple("qwen3_next_bf16", 2)));

// A turn that begins at the snapshot at position 64 continues as the one that computed it: its
// steps are the same ones.
TEST_P(CudaStates, APrefixHitGivesTheSameBits) {
  const auto [model, size] = GetParam();
  const std::string dir = DirOf(model);
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(dir).prompts[3]};
  RigOptions options = OnDevices(size);
  options.chunk_tokens = options.second_chunk_tokens = 64;
  options.decode_tokens = 4;
  const RigResult computed = RunRig(dir, prompts, options);
  options.second_turn_tokens = 0;
  const RigResult cached = RunRig(dir, prompts, options);
  EXPECT_EQ(cached.cached_tokens, 64);
  EXPECT_TRUE(cached.logits == computed.logits);
  EXPECT_EQ(cached.greedy_ids, computed.greedy_ids);
}

// Beside others and in another slot a sequence has the bits that it has alone, as long as its own
// steps are the same.
TEST(CudaStatesOfSteps, OtherSequencesOfAStepChangeNoBits) {
  const std::string dir = DirOf("qwen3_5_bf16");
  const Golden golden = ReadGolden(dir);
  RigOptions options = OnDevices(1);
  options.chunk_tokens = 7;  // so few that all steps take the same kernels
  options.decode_tokens = 3;
  options.decode_logits = true;
  const RigResult alone = RunRig(dir, {golden.prompts[2]}, options);
  const RigResult together =
      RunRig(dir, {golden.prompts[1], golden.prompts[3], golden.prompts[2]}, options);
  EXPECT_TRUE(together.logits[2] == alone.logits[0]);
  EXPECT_EQ(together.greedy_ids[2], alone.greedy_ids[0]);
}

// In a pool for little more than one sequence: a request is preempted as the others grow, and
// computed again behind a snapshot or from the beginning.
TEST_P(CudaStates, PreemptionAndCachedPrefixesChangeNoToken) {
  const auto [model, size] = GetParam();
  const std::string dir = DirOf(model);
  const std::vector<int32_t> all = ReadGolden(dir).prompts[3];
  std::vector<Request> requests;
  for (const auto& [first, tokens] : {std::pair(4, 14), std::pair(0, 78), std::pair(0, 73)}) {
    Request request;
    request.request_id = std::to_string(requests.size());
    request.prompt.assign(all.begin() + first, all.begin() + first + tokens);
    request.sampling.temperature = 0;
    request.stopping.max_tokens = 14;
    request.stopping.ignore_eos = true;
    request.wants_text = false;
    requests.push_back(std::move(request));
  }
  RigOptions options = OnDevices(size);
  options.max_num_batched_tokens = 64;
  const auto want = RunRequests(dir, requests, 1, options);
  options.kv_groups = true;
  options.max_model_len = 112;
  for (const bool caches : {false, true}) {
    int preemptions = 0;
    options.preemptions = &preemptions;
    options.prefix_caching = caches;
    EXPECT_EQ(RunRequests(dir, requests, 1, options), want) << caches;
    EXPECT_GT(preemptions, 0);
  }
}

// Steps as graphs, padded with rows of no sequence, and two of them in flight.
TEST(CudaStatesOfGraphs, StepsInFlightChangeNoToken) {
  const std::string dir = DirOf("qwen3_5_bf16");
  const std::vector<int32_t> all = ReadGolden(dir).prompts[3];
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    Request request;
    request.request_id = std::to_string(i);
    request.prompt.assign(all.begin(), all.begin() + 5 + 17 * i);
    request.sampling = {.temperature = 0};
    request.stopping.max_tokens = 3 + 3 * i % 8;
    request.stopping.ignore_eos = true;
    request.wants_text = false;
    requests.push_back(std::move(request));
  }
  RigOptions options = OnDevices(1);
  options.prefix_caching = true;
  const auto staged = RunRequests(dir, requests, 1, options);
  options.decode_graphs = true;
  options.pads_decodes = true;
  std::shared_ptr<emulator::EmulatedCudaDriver> driver;
  options.make_device = [&] {
    return EmulatedDevice(emulator::Schedule::kAscending, true, &driver);
  };
  EXPECT_EQ(RunRequests(dir, requests, 1, options), staged);
  EXPECT_EQ(RunRequests(dir, requests, 2, options), staged);
  EXPECT_GT(driver->graph_launches(), 4);
}

}  // namespace
}  // namespace bulkhead
