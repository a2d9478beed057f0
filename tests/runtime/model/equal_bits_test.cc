// The promise of the house: a request's logits have the same bits at any tensor-parallel degree,
// batch, chunking, block size, number of threads and instruction set, with and without a cached
// prefix; and they are the right ones, by goldens that another implementation computed.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "gtest/gtest.h"
#include "memory/kv_format_name.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

constexpr int kDecodeTokens = 32;

std::string ModelDir(const std::string& name) {
  return std::string(BH_TEST_DATA) + "/models/" + name;
}

std::vector<std::string> SupportedModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ModelDir(""))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ExpectGolden(const RigResult& got, const Golden& golden) {
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    EXPECT_LE(RelativeError(got.logits[i], golden.logits[i]), 1e-4) << "prompt " << i;
  }
  EXPECT_EQ(got.greedy_ids, golden.greedy_ids);
}

class EqualBits : public testing::TestWithParam<std::string> {
 protected:
  std::string dir_ = ModelDir(GetParam());
  Golden golden_ = ReadGolden(dir_);
  RigOptions base_{.decode_tokens = kDecodeTokens};

  RigResult Run(const RigOptions& options) { return RunRig(dir_, golden_.prompts, options); }

  bool KeepsStates() const {
    const auto config = ReadSmallFile(dir_ + "/config.json", 1 << 20);
    return config.ok() && config->find("linear_attention") != std::string::npos;
  }

  // How far rounding of the cache may move logits; where it sends a token to another expert, far.
  // Scores that are not scaled down (Gemma 4) are moved more by rounded keys.
  double Tolerance(double of_dense) const {
    const auto config = ReadSmallFile(dir_ + "/config.json", 1 << 20);
    const bool routes =
        config.ok() && (config->find("num_experts_per_tok") != std::string::npos ||
                        config->find("\"enable_moe_block\": true") != std::string::npos);
    const bool scales = config.ok() && config->find("gemma4") == std::string::npos;
    if (routes) return std::max(of_dense, scales ? 0.3 : 0.5);
    return scales ? of_dense : 1.5 * of_dense;
  }

  // Tokens in the full blocks in front of the last token, of all prompts with `more` tokens each.
  int64_t WholeBlocks(int64_t more) const {
    int64_t tokens = 0;
    for (const auto& prompt : golden_.prompts) {
      const int64_t before = static_cast<int64_t>(prompt.size()) + more - 1;
      const int64_t unit =
          KeepsStates() ? std::max(kStateBlock, base_.block_tokens) : base_.block_tokens;
      tokens += before / unit * unit;
    }
    return tokens;
  }
};

TEST_P(EqualBits, AtAnyTensorParallelDegreeAndRight) {
  const RigResult one = Run(base_);
  ExpectGolden(one, golden_);
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(size);
    RigOptions options = base_;
    options.size = size;
    ExpectSameBits(Run(options), one);
  }
  RigOptions three = base_;
  three.size = 3;  // ranges of its own: equal tokens, not equal bits
  ExpectGolden(Run(three), golden_);
}

TEST_P(EqualBits, InAnyBatchChunkingBlockSizeThreadsAndInstructionSet) {
  const RigResult want = Run(base_);
  RigOptions alone = base_;
  alone.together = false;
  ExpectSameBits(Run(alone), want);
  for (const int chunk : {1, 7}) {
    SCOPED_TRACE(chunk);
    RigOptions options = base_;
    options.chunk_tokens = chunk;
    options.block_tokens = chunk == 1 ? 256 : 32;
    options.threads = chunk == 1 ? 2 : 3;
    options.size = chunk == 1 ? 1 : 2;
    ExpectSameBits(Run(options), want);
  }
  for (const char* backend : {"ordered", "plain", "avx2"}) {
    SCOPED_TRACE(backend);
    RigOptions options = base_;
    options.backend = backend;
    options.chunk_tokens = 24;
    ExpectSameBits(Run(options), want);
  }
}

TEST_P(EqualBits, WithTheCacheInBfloat16Too) {
  RigOptions options = base_;
  options.kv_format = KvFormat::kBF16;
  const RigResult want = Run(options);
  EXPECT_LT(RelativeError(want.logits.back(), golden_.logits.back()), Tolerance(0.05));
  for (const int size : {2, 8}) {
    SCOPED_TRACE(size);
    RigOptions split = options;
    split.size = size;
    split.chunk_tokens = size == 2 ? 13 : 512;
    split.block_tokens = size == 2 ? 64 : 16;
    ExpectSameBits(Run(split), want);
  }
}

TEST_P(EqualBits, WithAQuantizedCacheToo) {
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    SCOPED_TRACE(KvFormatName(format));
    RigOptions options = base_;
    options.kv_format = format;
    const RigResult want = Run(options);
    EXPECT_LT(RelativeError(want.logits.back(), golden_.logits.back()),
              Tolerance(format == KvFormat::kInt8  ? 0.05
                        : format == KvFormat::kFP8 ? 0.25
                                                   : 0.5));
    for (const int size : {2, 4, 8}) {
      SCOPED_TRACE(size);
      RigOptions split = options;
      split.size = size;
      split.chunk_tokens = size == 2 ? 13 : size == 4 ? 1 : 512;
      split.block_tokens = size == 2 ? 64 : size == 4 ? 256 : 16;
      split.threads = size == 2 ? 2 : 1;
      ExpectSameBits(Run(split), want);
    }
    for (const char* backend : {"plain", "avx2"}) {
      SCOPED_TRACE(backend);
      RigOptions other = options;
      other.backend = backend;
      other.chunk_tokens = 24;
      ExpectSameBits(Run(other), want);
    }
  }
}

TEST_P(EqualBits, BehindACachedPrefix) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    SCOPED_TRACE(KvFormatName(format));
    RigOptions computed = base_;
    computed.kv_format = format;
    const RigResult want = Run(computed);
    for (const int chunk : {512, 5}) {  // of the turn that fills the cache
      SCOPED_TRACE(chunk);
      RigOptions options = computed;
      options.chunk_tokens = chunk;
      options.second_chunk_tokens = 512 + 9 - chunk;
      options.size = chunk == 5 ? 2 : 1;
      options.together = chunk == 5;
      options.second_turn_tokens = 0;
      const RigResult prompt_cached = Run(options);
      EXPECT_EQ(prompt_cached.cached_tokens, WholeBlocks(0));
      ExpectSameBits(prompt_cached, want);
      options.second_turn_tokens = kDecodeTokens / 2;  // blocks that decoding filled
      const RigResult answer_cached = Run(options);
      EXPECT_EQ(answer_cached.cached_tokens, WholeBlocks(kDecodeTokens / 2));
      ExpectSameBits(answer_cached, want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EqualBits, testing::ValuesIn(SupportedModels()),
                         [](const auto& info) { return info.param; });

TEST(ReferenceBackend, ReproducesTheGoldens) {
  for (const char* name : {"llama3_gqa_bf16", "qwen3_bf16", "mistral_window_bf16"}) {
    SCOPED_TRACE(name);
    const Golden golden = ReadGolden(ModelDir(name));
    ExpectGolden(RunRig(ModelDir(name), golden.prompts,
                        {.backend = "reference", .decode_tokens = kDecodeTokens}),
                 golden);
  }
}

}  // namespace
}  // namespace bulkhead
