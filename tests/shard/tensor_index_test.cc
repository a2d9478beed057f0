// What Checkpoint::Open and CheckAgainst accept and refuse, and how they name it.
#include "shard/tensor_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/family_spec.h"
#include "shard/weight_loader.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";

// A sharded checkpoint that a test may damage before it is opened.
struct ShardedFiles {
  std::vector<RawTensor> first;
  std::vector<RawTensor> second;
  json weight_map = json::object();

  explicit ShardedFiles(const ModelConfig& config) {
    for (RawTensor& tensor : RandomTensors(config, "BF16", 1)) {
      const bool is_first = first.size() <= second.size();
      weight_map[tensor.name] = is_first ? kFirst : kSecond;
      (is_first ? first : second).push_back(std::move(tensor));
    }
  }
  void Write(const TemporaryFolder& folder) const {
    WriteFile(folder.File(kFirst), SafetensorsBytes(first));
    WriteFile(folder.File(kSecond), SafetensorsBytes(second));
    WriteFile(folder.File(kIndex), json{{"weight_map", weight_map}}.dump());
  }
};

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok()) << "expected a refusal that says " << words.front();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

void ExpectOpenRefused(const ShardedFiles& files, const std::vector<std::string>& words) {
  const TemporaryFolder folder;
  files.Write(folder);
  ExpectRefused(Checkpoint::Open(folder.path()).status(), words);
}

// Opens a single file with these tensors and checks it.
absl::Status Check(const std::vector<RawTensor>& tensors, const ModelConfig& config) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
  const auto checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return (*checkpoint)->CheckAgainst(config);
}

RawTensor& Find(std::vector<RawTensor>& tensors, const std::string& name) {
  for (RawTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return tensors.front();
}

TEST(TensorIndexTest, EveryFixtureHoldsWhatItsConfigDemands) {
  for (const std::string& dir : FixtureDirs()) {
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status status = (*checkpoint)->CheckAgainst(FixtureConfig(dir));
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(TensorIndexTest, AShardedCheckpointIsOpenedThroughSymbolicLinks) {
  const TemporaryFolder blobs;
  const TemporaryFolder snapshot;
  const ShardedFiles files(SmallConfig());
  files.Write(blobs);
  for (const char* name : {kFirst, kSecond, kIndex}) {
    std::filesystem::create_symlink(blobs.File(name), snapshot.File(name));
  }
  const auto checkpoint = Checkpoint::Open(snapshot.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->CheckAgainst(SmallConfig()).ok());
}

TEST(TensorIndexTest, AFolderWithoutWeightsIsNotFound) {
  const TemporaryFolder folder;
  const absl::Status status = Checkpoint::Open(folder.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  ExpectRefused(status, {folder.path(), "model.safetensors"});
}

TEST(TensorIndexTest, AnIndexThatReachesOutsideIsRefused) {
  for (const json& name :
       {json("../x.safetensors"), json("/etc/passwd"), json("a/b"), json(".."), json("."), json(""),
        json(".hidden"), json(std::string("a\0b", 3)), json(7), json(nullptr)}) {
    ShardedFiles files(SmallConfig());
    files.weight_map["model.norm.weight"] = name;
    ExpectOpenRefused(files, {kIndex, "model.norm.weight", "not the name of a file"});
  }
}

TEST(TensorIndexTest, IndexAndFilesMustAgree) {
  ShardedFiles absent_file(SmallConfig());
  absent_file.weight_map["model.norm.weight"] = "model-00003-of-00002.safetensors";
  ExpectOpenRefused(absent_file,
                    {"model-00003-of-00002.safetensors is missing", "model.norm.weight"});

  ShardedFiles elsewhere(SmallConfig());
  const std::string moved = elsewhere.first.front().name;
  elsewhere.weight_map[moved] = kSecond;
  ExpectOpenRefused(elsewhere, {moved, kSecond, "is not in", kIndex});

  ShardedFiles nowhere(SmallConfig());
  nowhere.weight_map["model.imaginary"] = kFirst;
  ExpectOpenRefused(nowhere, {"model.imaginary", kFirst, "is not in"});

  ShardedFiles unlisted(SmallConfig());
  unlisted.weight_map.erase(moved);
  ExpectOpenRefused(unlisted, {moved, kFirst, "but not in", kIndex});

  ShardedFiles twice(SmallConfig());
  twice.second.push_back(twice.first.front());
  ExpectOpenRefused(twice, {moved, kFirst, kSecond});
}

TEST(TensorIndexTest, AnIndexThatIsNoneIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    const TemporaryFolder folder;
    WriteFile(folder.File(kIndex), text);
    ExpectRefused(Checkpoint::Open(folder.path()).status(), {kIndex});
  }
}

TEST(TensorIndexTest, ATruncatedShardIsNamed) {
  const TemporaryFolder folder;
  const ShardedFiles files(SmallConfig());
  files.Write(folder);
  std::filesystem::resize_file(folder.File(kSecond),
                               std::filesystem::file_size(folder.File(kSecond)) - 1);
  ExpectRefused(Checkpoint::Open(folder.path()).status(),
                {kSecond, "truncated", files.second.back().name});
}

TEST(TensorIndexTest, EveryMissingWeightIsNamed) {
  const ModelConfig config = SmallConfig();
  const std::vector<RawTensor> all = RandomTensors(config, "F32", 2);
  ASSERT_TRUE(Check(all, config).ok());
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<RawTensor> rest = all;
    rest.erase(rest.begin() + static_cast<int64_t>(i));
    const absl::Status status = Check(rest, config);
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    ExpectRefused(status, {"'" + all[i].name + "'", "missing"});
  }
}

TEST(TensorIndexTest, AWrongShapeIsNamedWithBothShapes) {
  const ModelConfig config = SmallConfig();
  std::vector<RawTensor> tensors = RandomTensors(config, "F32", 3);
  Find(tensors, "model.layers.1.self_attn.q_proj.weight").shape = {12, 24};  // transposed
  ExpectRefused(
      Check(tensors, config),
      {"model.safetensors", "model.layers.1.self_attn.q_proj.weight", "[12, 24]", "[24, 12]"});
  tensors = RandomTensors(config, "F32", 3);
  Find(tensors, "model.norm.weight").shape = {1, 12};
  ExpectRefused(Check(tensors, config), {"model.norm.weight", "[1, 12]", "[12]"});
}

TEST(TensorIndexTest, ANumberFormatOfNoWeightIsNamed) {
  const ModelConfig config = SmallConfig();
  std::vector<RawTensor> tensors = RandomTensors(config, "F32", 4);
  Find(tensors, "model.norm.weight").format = "I32";
  const absl::Status status = Check(tensors, config);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  ExpectRefused(status, {"model.norm.weight", "I32", "BF16"});
}

TEST(TensorIndexTest, AWeightWithoutAPlaceIsNamed) {
  const ModelConfig config = SmallConfig();
  for (const char* name : {"model.layers.2.mlp.up_proj.weight",  // beyond the last layer
                           "model.layers.0.self_attn.q_proj.bias",
                           "model.layers.0.mlp.experts.0.w1.weight", "visual.patch_embed"}) {
    std::vector<RawTensor> tensors = RandomTensors(config, "F32", 5);
    tensors.push_back({name, "F32", {1}, "abcd"});
    ExpectRefused(Check(tensors, config),
                  {name, "no place", "LlamaForCausalLM", "model.safetensors"});
  }
}

TEST(TensorIndexTest, KnownSurplusIsPassedOver) {
  ModelConfig config = SmallConfig();
  std::vector<RawTensor> tensors = RandomTensors(config, "F32", 6);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F64", {1}, "abcdefgh"});
  EXPECT_TRUE(Check(tensors, config).ok());
  config.tie_word_embeddings = true;
  EXPECT_TRUE(Check(tensors, config).ok()) << "lm_head is there, and tied";
}

TEST(TensorIndexTest, ATextPartMayHaveTheNamesThatItHadInAMultimodalCheckpoint) {
  const ModelConfig config = FixtureConfig(BH_TEST_DATA "/models/qwen3_5_moe_bf16");
  const auto architecture = [&config](const char* tensor) -> std::string {
    const TemporaryFolder folder;
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes({{tensor, "F32", {1}, "wxyz"}}));
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return (*checkpoint)->FamilyOfNames(config, AllFamilySpecs())->architecture;
  };
  EXPECT_EQ(architecture("model.embed_tokens.weight"), "Qwen3_5MoeForCausalLM");
  EXPECT_EQ(architecture("model.language_model.embed_tokens.weight"),
            "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(architecture("model.norm.weight"), "Qwen3_5MoeForCausalLM");
}

TEST(TensorIndexTest, AnLmHeadIsItsOwnWhereAnyOfItsBytesIsNotTheEmbeddings) {
  const ModelConfig config = SmallConfig();
  const auto own = [&](const std::vector<RawTensor>& tensors) {
    const TemporaryFolder folder;
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return (*checkpoint)->HasOwnLmHead(config);
  };
  std::vector<RawTensor> tensors = RandomTensors(config, "F32", 8);
  EXPECT_TRUE(*own(tensors));
  RawTensor& head = Find(tensors, "lm_head.weight");
  head.bytes = Find(tensors, "model.embed_tokens.weight").bytes;
  EXPECT_FALSE(*own(tensors));
  head.bytes.back() ^= 1;
  EXPECT_TRUE(*own(tensors));
  std::erase_if(tensors, [](const RawTensor& tensor) { return tensor.name == "lm_head.weight"; });
  EXPECT_FALSE(*own(tensors));
}

TEST(TensorIndexTest, TheMainFormatIsThatOfMostBytes) {
  const auto main_dtype = [](const std::vector<RawTensor>& tensors) {
    const TemporaryFolder folder;
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return (*checkpoint)->MainDType();
  };
  const RawTensor small = {"a", "F32", {1}, "wxyz"};
  const RawTensor large = {"b", "BF16", {2, 3}, std::string(12, 'x')};
  const RawTensor no_weight = {"c", "I64", {4}, std::string(32, 'x')};
  EXPECT_EQ(main_dtype({small, large, no_weight}), DType::kBF16);
  EXPECT_EQ(main_dtype({small, no_weight}), DType::kF32);
}

TEST(TensorIndexTest, TheFingerprintSeesNamesShapesFormatsAndOffsets) {
  const auto fingerprint = [](const std::vector<RawTensor>& tensors) {
    const TemporaryFolder folder;
    WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return (*checkpoint)->Fingerprint();
  };
  const std::vector<RawTensor> base = {{"a", "F16", {2, 3}, std::string(12, 'x')},
                                       {"b", "F16", {2}, "wxyz"}};
  EXPECT_EQ(fingerprint(base), fingerprint(base));
  std::vector<RawTensor> other = base;
  other[0].name = "c";
  EXPECT_NE(fingerprint(base), fingerprint(other));
  other = base;
  other[0].shape = {3, 2};
  EXPECT_NE(fingerprint(base), fingerprint(other));
  other = base;
  other[0].format = "BF16";
  EXPECT_NE(fingerprint(base), fingerprint(other));
  EXPECT_NE(fingerprint(base), fingerprint({base[1], base[0]}));
}

}  // namespace
}  // namespace bulkhead
