// Which products the forward pass asks of a backend, and that the warm-up meets the same ones.
#include "runtime/model/decoder.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "kernels/reference/reference_backend.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

constexpr int kMaxTokens = 24;

// What a backend may prepare a product for: the weight, the widths and how rows lie.
using Product = std::tuple<const std::byte*, int64_t, int64_t, int64_t, int64_t>;
Product ProductOf(ConstMatrixView x, const Linear& weight, MatrixView out) {
  return {weight.packed, x.cols(), x.row_stride(), out.cols(), out.row_stride()};
}

class RecordingBackend final : public ReferenceBackend {
 public:
  explicit RecordingBackend(Device& device)
      : ReferenceBackend(device, Order::kDouble, ActivationDType::kF32) {}
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    if (!x.empty() && !out.empty()) multiplied.insert(ProductOf(x, weight, out));
  }
  absl::Status WarmUpMatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    if (x.empty() || out.empty()) return absl::OkStatus();
    EXPECT_EQ(x.rows(), out.rows());
    EXPECT_EQ(x.rows(), kMaxTokens);
    warmed_up.insert(ProductOf(x, weight, out));
    return warm_up_status;
  }
  absl::Status WarmUpMatMulGated(ConstMatrixView x, const Linear& weight,
                                 MatrixView gate_up) override {
    if (!gate_up.empty()) warmed_up_gated.insert(weight.packed);
    return WarmUpMatMul(x, weight, gate_up);
  }
  void MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                   MatrixView gate_up, MatrixView out) override {
    if (!gate_up.empty()) multiplied_gated.insert(weight.packed);
    Backend::MatMulGated(activation, x, weight, gate_up, out);
  }
  void RmsNorm(ConstMatrixView x, ConstMatrixView, float, MatrixView) override {
    num_other_rows += x.rows();
  }
  void NormRope(const StepIndex& index, const HeadLayout&, const HeadNorms&, const Rotary&,
                MatrixView) override {
    num_other_rows += index.num_tokens;
  }
  void Attend(const StepIndex& index, const HeadLayout&, ConstMatrixView, const KvLayerView&,
              const AttentionOptions&, MatrixView) override {
    num_other_rows += index.num_tokens;
  }
  void GatedActivation(Activation, ConstMatrixView gate_up, MatrixView) override {
    num_other_rows += gate_up.rows();
  }

  std::set<Product> multiplied, warmed_up;
  std::set<const std::byte*> multiplied_gated, warmed_up_gated;
  absl::Status warm_up_status;
  int64_t num_other_rows = 0;
};

class OneRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    EXPECT_EQ(num_sums, num_plain_sums + static_cast<int>(norms.size()));  // else one is lost
    ++num_sums;
    values_.resize(rows * cols);
    sum_ = {reinterpret_cast<std::byte*>(values_.data()), DType::kF32, rows, cols};
    return sum_;
  }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    ++num_plain_sums;
    return sum_;
  }
  bool NormsSum(int64_t rows, int64_t /*cols*/) const override { return rows <= most_normed_rows; }
  void AllReduceSumNorm(const ResidualNorm& norm) override { norms.push_back(norm); }
  absl::Status GatherCols(ConstMatrixView, absl::Span<const int64_t>, MatrixView) override {
    return absl::OkStatus();
  }
  int num_sums = 0;
  int num_plain_sums = 0;
  int64_t most_normed_rows = 0;
  std::vector<ResidualNorm> norms;

 private:
  std::vector<float> values_;
  MatrixView sum_;
};

// A rank of 8, over memory of zeroes.
class DecoderTest : public testing::TestWithParam<int> {
 protected:
  explicit DecoderTest(const ModelConfig& config = Config())
      : plan_(*ShardPlan::Create(config, 8)) {
    limits_ = {{.max_num_seqs = 1,
                .max_model_len = 64,
                .max_num_batched_tokens = kMaxTokens,
                .block_tokens = 64,
                .num_kv_blocks = 1},
               WeightFormats::Of(DType::kBF16)};
    BumpAllocator allocator(memory_.data());
    weights_ = LayOutWeights(plan_.rank(rank_), limits_.weights, backend_, allocator);
    const Activations activations = LayOutActivations(plan_, rank_, limits_, backend_, allocator);
    const Workspace workspace = LayOutWorkspace(plan_, rank_, limits_, backend_, allocator);
    backend_.SetWorkspace(workspace.scratch, StepLimitsOf(plan_, rank_, limits_),
                          HeadLayoutOf(plan_, rank_));
    logits_ = LayOutLogits(plan_, rank_, limits_, backend_, allocator);
    const KvArena kv = KvArenaOf(plan_, rank_, limits_, allocator.Next(1 << 16));
    EXPECT_LE(allocator.used_bytes(), static_cast<int64_t>(memory_.size()));
    decoder_.emplace(DecoderParts{plan_,
                                  rank_,
                                  weights_,
                                  activations,
                                  workspace.positions,
                                  kv,
                                  {},
                                  LayerPlacesOf(plan_.rank(rank_), limits_),
                                  limits_.table_rows()},
                     backend_, comm_);
  }
  // A step of two tokens.
  void Forward() {
    const std::vector<int32_t> begins = {0, 2}, zeroes = {0, 0}, positions = {0, 1};
    const StepIndex index = {.num_seqs = 1,
                             .num_tokens = 2,
                             .seq_begin = begins.data(),
                             .seq_slot = zeroes.data(),
                             .position = positions.data(),
                             .token_seq = zeroes.data(),
                             .block_tables = zeroes.data(),
                             .block_table_stride = 1};
    ASSERT_TRUE(decoder_->Forward(index, zeroes.data()).ok());
  }
  static ModelConfig Config() {
    ModelConfig config = SmallConfig();
    config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = true;
    return config;
  }

  const int rank_ = GetParam();
  const ShardPlan plan_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  const std::unique_ptr<Device> device_ = NewHostDevice(0);
  RecordingBackend backend_{*device_};
  OneRank comm_;
  ModelLimits limits_;
  ModelWeights weights_;
  LogitBuffers logits_;
  std::optional<Decoder> decoder_;
};

TEST_P(DecoderTest, TheWarmUpMeetsTheProductsOfAStep) {
  const MatrixView selected = logits_.selected.Rows(0, kMaxTokens);
  const MatrixView part = logits_.part.Rows(0, kMaxTokens);
  ASSERT_TRUE(decoder_->WarmUpProducts(selected, part).ok());
  EXPECT_EQ(backend_.num_other_rows, 0);
  EXPECT_EQ(comm_.num_sums, 0);
  EXPECT_TRUE(backend_.multiplied.empty());

  Forward();
  decoder_->Logits(selected.Rows(0, 1), part.Rows(0, 1));
  EXPECT_EQ(backend_.warmed_up, backend_.multiplied);
  const bool has_heads = !plan_.rank(rank_).heads.empty();
  EXPECT_EQ(backend_.multiplied.size(), 2u * (has_heads ? 4 : 2) + 1);
  EXPECT_EQ(comm_.num_sums, 1 + 2 * 2);
}

TEST_P(DecoderTest, ANormMakesTheSumBeforeItWhereTheCommunicatorCan) {
  comm_.most_normed_rows = 1;
  Forward();
  EXPECT_EQ(comm_.num_plain_sums, 1 + 2 * 2);
  EXPECT_TRUE(comm_.norms.empty());
  comm_.most_normed_rows = 2;
  Forward();
  EXPECT_EQ(comm_.num_plain_sums, 1 + 2 * 2 + 1);  // no norm follows the last
  ASSERT_EQ(comm_.norms.size(), 2U * 2);
  for (size_t i = 0; i < comm_.norms.size(); ++i) {
    EXPECT_EQ(comm_.norms[i].hidden.data(), decoder_->Hidden(2).data());
    EXPECT_EQ(comm_.norms[i].bias.empty(), i == 0) << "the embedding has none";
  }
}

TEST_P(DecoderTest, AWarmUpThatFailsSaysSo) {
  backend_.warm_up_status = absl::InternalError("no library");
  EXPECT_EQ(decoder_->WarmUpProducts(logits_.selected, logits_.part).message(), "no library");
}

class GatedDecoderTest : public DecoderTest {
 protected:
  GatedDecoderTest() : DecoderTest(SmallConfig()) {}
};

TEST_P(GatedDecoderTest, TheWarmUpMeetsGatesAndUpsOfWeightsWithoutAdapters) {
  Forward();
  std::set<const std::byte*> gated = backend_.multiplied_gated;
  ASSERT_EQ(gated.size(), 2U) << "one in each layer";
  for (Weight& weight : weights_.layers[0].slots()) {
    if (weight.parts.size() != 1 || gated.erase(weight.parts[0].packed) == 0) continue;
    weight.low_rank.emplace_back();
  }
  ASSERT_TRUE(decoder_->WarmUpProducts(logits_.selected, logits_.part).ok());
  EXPECT_EQ(gated.size(), 1U);
  EXPECT_EQ(backend_.warmed_up_gated, gated);
}
INSTANTIATE_TEST_SUITE_P(Ranks, GatedDecoderTest, testing::Values(0, 5));

// Of six heads in groups of two, rank 0 of 8 has one and rank 5 none.
INSTANTIATE_TEST_SUITE_P(Ranks, DecoderTest, testing::Values(0, 5));

}  // namespace
}  // namespace bulkhead
