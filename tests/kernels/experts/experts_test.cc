// The products of experts: every variant has the values of the oracle and the bits of the promised
// order, whatever the tokens beside one.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/arithmetic.h"
#include "kernels/cpu/isa.h"
#include "kernels/matmul/bf16_amx.h"
#include "kernels/matmul/cpu.h"
#include "tests/kernels/experts/routing.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

struct ProductsCase {
  WeightFormat format;
  ActivationDType activation;
  int num_slices;
  WeightFormat shared_format = format;
};
std::ostream& operator<<(std::ostream& out, const ProductsCase& c) {
  return out << WeightFormatName(c.format) << " in " << ActivationDTypeName(c.activation) << ", "
             << c.num_slices << " slices, shared " << WeightFormatName(c.shared_format);
}

constexpr int kExperts = 7;
constexpr int kPerToken = 3;
constexpr int32_t kHeadToKv = 0;

struct Sizes {
  int64_t hidden = 70;
  int64_t width = 72;
  int64_t shared_width = 40;
};

constexpr int64_t kTokens = 300;

std::vector<float> LogitsOf(int64_t tokens) { return NormalFloats(tokens * kExperts, 100); }

// Logits of tokens that give each expert this many of them.
std::vector<float> LogitsForRows(std::vector<int> rows_of_expert) {
  const int64_t pairs = std::accumulate(rows_of_expert.begin(), rows_of_expert.end(), 0);
  std::vector<float> logits = LogitsOf(pairs / kPerToken);
  for (size_t token = 0; token < logits.size(); token += kExperts) {
    std::vector<int> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return rows_of_expert[a] > rows_of_expert[b]; });
    for (int i = 0; i < kPerToken; ++i) {
      --rows_of_expert[order[i]];
      logits[token + order[i]] += 100;
    }
  }
  EXPECT_EQ(rows_of_expert, std::vector<int>(kExperts, 0));
  return logits;
}

class ExpertProducts : public testing::TestWithParam<ProductsCase> {
 protected:
  // `cols` in slices, one of which is empty.
  static LinearShape ShapeOf(int64_t rows, int64_t cols, int num_slices, WeightFormat format) {
    LinearShape shape{rows, cols, format, {0}};
    for (int i = 1; i < num_slices; ++i) {
      shape.k_borders.push_back(i == 1 ? 0 : cols * i / num_slices);
    }
    shape.k_borders.push_back(cols);
    if (IsQuantized(shape.format)) shape.groups.size = 32;
    return shape;
  }

  // All experts' weights and the shared one's, packed.
  std::vector<Linear> Pack(Backend& backend, std::vector<LinearShape> shapes) {
    std::vector<Linear> weights;
    uint32_t seed = 0;
    for (LinearShape& shape : shapes) {
      auto memory = device_->Allocate(std::max<int64_t>(64, backend.PackedBytes(shape)));
      memory_.push_back(std::move(memory).value());
      const Linear weight{std::move(shape), memory_.back().data()};
      const std::vector<float> values = NormalFloats(weight.shape.rows * weight.shape.cols, ++seed);
      backend.Pack(weight)->PutRows(
          0, ConstMatrixView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                             weight.shape.rows, weight.shape.cols));
      weights.push_back(weight);
    }
    return weights;
  }

  // Both products of an MLP of experts without what is between them, over the tokens of `logits`.
  // Those of `first` alone where count is given.
  std::vector<float> Run(Backend& backend, const std::vector<float>& all_logits, bool has_shared,
                         const Sizes& sizes = {}, int64_t first = 0, int64_t count = -1) {
    const int64_t hidden = sizes.hidden, width = sizes.width, shared_width = sizes.shared_width;
    const int64_t tokens = static_cast<int64_t>(all_logits.size()) / kExperts;
    const ProductsCase& c = GetParam();
    std::vector<LinearShape> ups(kExperts, ShapeOf(width, hidden, 1, c.format));
    std::vector<LinearShape> downs(kExperts, ShapeOf(hidden, width, c.num_slices, c.format));
    downs.push_back(ShapeOf(hidden, shared_width, c.num_slices, c.shared_format));
    const std::vector<Linear> up = Pack(backend, ups), down = Pack(backend, downs);
    if (count < 0) count = tokens;
    const Buffer workspace = SetWorkspace(backend, count, sizes);
    const auto rows = [&](std::vector<float> values, int64_t cols) {
      return std::vector<float>(values.begin() + first * cols,
                                values.begin() + (first + count) * cols);
    };
    const std::vector<float> logits = rows(all_logits, kExperts);
    const std::vector<float> x = rows(NormalFloats(tokens * hidden, 101), hidden);
    const std::vector<float> shared_x =
        rows(NormalFloats(tokens * shared_width, 102), shared_width);
    Routing routing(count, kExperts, kPerToken);
    backend.RouteTokens(View(logits, count, kExperts, kExperts), {}, {}, {.normalizes = true},
                        routing.view);
    std::vector<float> inner(count * kPerToken * width, NAN), out(count * hidden, NAN);
    const MatrixView pairs = View(inner, count * kPerToken, width, width);
    backend.MatMulExperts(View(x, count, hidden, hidden), up, routing.view, pairs);
    backend.ScaleRows(routing.pair_weight.data(), pairs);
    backend.SumExperts(pairs, absl::MakeSpan(down).subspan(0, kExperts), routing.view,
                       View(shared_x, count, shared_width, shared_width),
                       has_shared ? &down.back() : nullptr, View(out, count, hidden, hidden));
    return out;
  }

  // The first product of an MLP with `gates` of each expert, activated; `together` in one call.
  std::vector<float> Gated(Backend& backend, const std::vector<float>& logits, int64_t gates,
                           bool together) {
    constexpr int64_t kHidden = 130;
    const int64_t tokens = static_cast<int64_t>(logits.size()) / kExperts;
    const int64_t pairs = tokens * kPerToken;
    const std::vector<Linear> experts =
        Pack(backend,
             std::vector<LinearShape>(kExperts, ShapeOf(2 * gates, kHidden, 1, GetParam().format)));
    const Buffer workspace = SetWorkspace(backend, tokens, {.hidden = kHidden});
    const std::vector<float> x = NormalFloats(tokens * kHidden, 103);
    Routing routing(tokens, kExperts, kPerToken);
    backend.RouteTokens(View(logits, tokens, kExperts, kExperts), {}, {}, {}, routing.view);
    std::vector<float> both(pairs * (2 * gates + 3), NAN), out(pairs * (gates + 1), 0.0F);
    const ConstMatrixView inputs = View(x, tokens, kHidden, kHidden);
    const MatrixView gate_up = View(both, pairs, 2 * gates, 2 * gates + 3);
    const MatrixView activated = View(out, pairs, gates, gates + 1);
    if (together) {
      backend.MatMulExpertsGated(Activation::kSilu, inputs, experts, routing.view, gate_up,
                                 activated);
    } else {
      backend.MatMulExperts(inputs, experts, routing.view, gate_up);
      backend.GatedActivation(Activation::kSilu, gate_up, activated);
    }
    return out;
  }

  // Of `tokens` tokens and no more.
  Buffer SetWorkspace(Backend& backend, int64_t tokens, const Sizes& sizes) {
    const int64_t inputs = std::max({sizes.hidden, sizes.width, sizes.shared_width});
    const StepLimits limits{.max_num_batched_tokens = static_cast<int>(tokens),
                            .max_num_seqs = 1,
                            .max_model_len = 16,
                            .max_int8_inputs = inputs,
                            .max_inputs = inputs,
                            .bf16_inputs = GetParam().activation == ActivationDType::kBf16,
                            .bf16_tiles = GetParam().activation == ActivationDType::kBf16Amx,
                            .num_experts = kExperts,
                            .experts_per_token = kPerToken,
                            .max_expert_inputs = inputs};
    const HeadLayout heads{1, 1, 16, &kHeadToKv};
    const int64_t bytes = std::max<int64_t>(64, backend.WorkspaceBytes(limits, heads));
    Buffer workspace = std::move(device_->Allocate(bytes)).value();
    backend.SetWorkspace(workspace.data(), limits, heads);
    return workspace;
  }

  static std::vector<const char*> Isas() {
    if (GetParam().activation != ActivationDType::kBf16Amx) {
      std::vector<const char*> isas{"plain_amx"};
      for (const Isa isa : PresentIsas()) isas.push_back(IsaName(isa));
      return isas;
    }
    if (CheckBf16Tiles(Isa::kAvx512Amx, ActivationDType::kBf16Amx).ok())
      return {"plain_amx", "avx512amx"};
    return {"plain_amx"};
  }

  void ExpectTheBitsOfThePromisedOrder(const std::vector<float>& logits, bool has_shared,
                                       const Sizes& sizes = {}) {
    const auto ordered = NewOrderedBackend(*device_, GetParam().activation);
    const std::vector<float> want = Run(*ordered, logits, has_shared, sizes);
    for (const char* isa : Isas()) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << isa << ", threads " << threads);
        ExpectSameBits(Run(*Cpu(isa, threads), logits, has_shared, sizes), want);
      }
    }
    if (GetParam().activation != ActivationDType::kF32 || want.size() > 64 * 70) return;
    ExpectNear(want, Run(*NewReferenceBackend(*device_), logits, has_shared, sizes), 1e-4);
  }

  std::unique_ptr<Backend> Cpu(const char* isa, int threads) {
    return std::move(NewCpuBackend(*device_, {.num_threads = threads,
                                              .isa = isa,
                                              .activation = GetParam().activation,
                                              .may_spin = false}))
        .value();
  }

  std::unique_ptr<Device> device_ = NewHostDevice(0);
  std::vector<Buffer> memory_;
};

TEST_P(ExpertProducts, HaveTheBitsOfThePromisedOrder) {
  for (const bool has_shared : {false, true}) {
    for (const int64_t tokens :
         {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{9}, int64_t{64}, kTokens}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, shared " << has_shared);
      ExpectTheBitsOfThePromisedOrder(LogitsOf(tokens), has_shared);
    }
  }
}

// From 13 rows on products in int8 are in AMX's tiles of 16 rows, those in bf16 whatever the rows;
// several blocks of cells or of tiles.
TEST_P(ExpertProducts, HaveThemForAnyNumberOfRowsOfAnExpert) {
  const Sizes wide{.hidden = 330, .width = 610, .shared_width = 340};
  ExpectTheBitsOfThePromisedOrder(LogitsForRows({12, 13, 1, 16, 17, 32, 35}), true, wide);
  ExpectTheBitsOfThePromisedOrder(LogitsForRows({15, 0, 15, 2, 13, 0, 0}), false, wide);
}

TEST_P(ExpertProducts, ActivatedInChunksHaveTheBitsOfBothOneAfterTheOther) {
  const auto expect_bits = [&](const std::vector<float>& logits, int64_t gates) {
    for (const char* isa : Isas()) {
      SCOPED_TRACE(testing::Message() << gates << " gates, " << isa);
      const auto backend = Cpu(isa, 3);
      ExpectSameBits(Gated(*backend, logits, gates, true), Gated(*backend, logits, gates, false));
    }
  };
  expect_bits(LogitsOf(kTokens), 96);
  expect_bits(LogitsForRows({0, 530, 0, 530, 515, 13, 2}), 96);
  expect_bits(LogitsOf(kTokens), 40);  // gates do not end with a panel
}

// More tokens than are summed together.
TEST_P(ExpertProducts, HaveThemWhereAllTokensShareExperts) {
  ExpectTheBitsOfThePromisedOrder(LogitsForRows({0, 530, 0, 530, 515, 15, 0}), true);
}

TEST_P(ExpertProducts, OfATokenDoNotDependOnTheOthers) {
  const auto backend = Cpu(Isas().back(), 2);
  const std::vector<float> logits = LogitsOf(kTokens);
  const std::vector<float> all = Run(*backend, logits, true);
  const int64_t cols = static_cast<int64_t>(all.size()) / kTokens;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {17, 1}, {250, 20}}) {
    ExpectSameBits(Run(*backend, logits, true, {}, first, count),
                   {all.begin() + first * cols, all.begin() + (first + count) * cols});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, ExpertProducts,
    testing::Values(
        ProductsCase{WeightFormat::kF32, ActivationDType::kF32, 8},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kF32, 8},
        ProductsCase{WeightFormat::kF16, ActivationDType::kF32, 1},
        ProductsCase{WeightFormat::kInt8, ActivationDType::kF32, 4},
        ProductsCase{WeightFormat::kInt4, ActivationDType::kF32, 8},
        ProductsCase{WeightFormat::kInt8, ActivationDType::kInt8, 8},
        ProductsCase{WeightFormat::kInt8, ActivationDType::kInt8, 1},
        ProductsCase{WeightFormat::kInt4, ActivationDType::kInt8, 2},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kBf16Amx, 8},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kBf16Amx, 1},
        ProductsCase{WeightFormat::kF16, ActivationDType::kBf16Amx, 2},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kBf16, 8},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kBf16, 1},
        ProductsCase{WeightFormat::kF16, ActivationDType::kBf16, 2},
        ProductsCase{WeightFormat::kInt8, ActivationDType::kBf16, 4, WeightFormat::kBF16},
        // A shared expert that a checkpoint leaves out of quantisation.
        ProductsCase{WeightFormat::kInt4, ActivationDType::kInt8, 4, WeightFormat::kBF16},
        ProductsCase{WeightFormat::kBF16, ActivationDType::kInt8, 4, WeightFormat::kInt8},
        ProductsCase{WeightFormat::kInt4, ActivationDType::kInt8, 2, WeightFormat::kInt8},
        ProductsCase{WeightFormat::kInt8, ActivationDType::kBf16Amx, 4, WeightFormat::kBF16}));

// Whatever each expert's rows are, those of different ones lie apart, in memory that was planned.
TEST(ExpertTilesTest, HaveRoomForEachExpertsLastTile) {
  constexpr int64_t kInputs = 100;
  const int64_t tile_numbers = Bf16TileInputsOf(kBf16TileRows, kInputs);
  for (const int tokens : {1, 2, 15, 16, 17, 100, 511, 513, 1000}) {
    const StepLimits limits{.max_num_batched_tokens = tokens,
                            .max_inputs = kInputs,
                            .bf16_tiles = true,
                            .num_experts = kExperts,
                            .experts_per_token = kPerToken,
                            .max_expert_inputs = kInputs};
    BumpAllocator planned;
    const CpuMatMulScratch sizes(limits, planned);
    std::vector<std::byte> memory(planned.used_bytes());
    BumpAllocator allocator(memory.data());
    const CpuMatMulScratch scratch(limits, allocator);
    const std::byte* free = reinterpret_cast<const std::byte*>(scratch.bf16_tiles);
    int64_t first = 0;
    for (int e = 0; e <= kExperts; ++e) {
      const int64_t left = int64_t{tokens} * kPerToken - first;
      // Most with one row behind a whole tile, the shared expert with all of a block's.
      const int64_t rows = e == kExperts       ? std::min<int64_t>(tokens, kExpertSumTokens)
                           : e == kExperts - 1 ? left
                                               : std::min<int64_t>(left, e % 2 == 0 ? 17 : 1);
      const auto* begin = reinterpret_cast<const std::byte*>(scratch.ExpertTiles(e, first));
      EXPECT_GE(begin, free) << tokens << " tokens, expert " << e;
      free = begin + CeilDiv(rows, kBf16TileRows) * tile_numbers * int64_t{sizeof(uint16_t)};
      first += rows;
    }
    EXPECT_LE(free, memory.data() + memory.size()) << tokens << " tokens";
  }
}

}  // namespace
}  // namespace bulkhead
