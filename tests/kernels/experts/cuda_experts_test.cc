// The products of experts, and what is done to their rows, on CUDA against the reference: experts
// with all pairs and with none, every weight format; the same bits in every order of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "base/arithmetic.h"
#include "kernels/experts/cuda.h"
#include "tests/kernels/cuda/padded_matrix.h"
#include "tests/kernels/experts/expert_workspace.h"
#include "tests/kernels/experts/routing.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr int kExperts = 7;
constexpr int kPerToken = 3;

struct ProductsCase {
  WeightFormat format;
  int64_t hidden;
  int64_t width;
  int num_slices = 1;
  int capability_major = 0;  // of the device; 0: any
};
std::ostream& operator<<(std::ostream& out, const ProductsCase& c) {
  return out << WeightFormatName(c.format) << " " << c.hidden << ", " << c.width << ", "
             << c.num_slices << " slices" << (c.capability_major == 9 ? ", 9.0" : "");
}

LinearShape ShapeOf(const ProductsCase& c, int64_t rows, int64_t cols, int num_slices) {
  LinearShape shape{rows, cols, c.format, {0}};
  for (int i = 1; i <= num_slices; ++i) shape.k_borders.push_back(cols * i / num_slices);
  if (IsQuantized(c.format)) shape.groups.size = 32;
  return shape;
}

// The experts' weights behind one another, as an arena has them, and others.
class PackedExperts {
 public:
  PackedExperts(Backend& backend, const LinearShape& shape, int count, uint32_t seed) {
    const int64_t stride = RoundUp(std::max<int64_t>(64, backend.PackedBytes(shape)), int64_t{64});
    memory_ = std::move(backend.device().Allocate(count * stride)).value();
    for (int e = 0; e < count; ++e) {
      const Linear weight{shape, memory_.data() + e * stride};
      const std::vector<float> values = NormalFloats(shape.rows * shape.cols, seed + e);
      backend.Pack(weight)->PutRows(0, View(values, shape.rows, shape.cols, shape.cols));
      all.push_back(weight);
    }
  }
  std::vector<Linear> all;

 private:
  Buffer memory_;
};

// Rows for a product, in f32 or as kernels leave them.
class Rows {
 public:
  Rows(Backend& backend, int64_t rows, int64_t cols, bool f16, uint32_t seed)
      : rows_(rows), cols_(cols), values_(NormalFloats(rows * cols, seed)) {
    for (float& value : values_) value = Rounded(value, f16 ? DType::kF16 : DType::kBF16);
    dtype_ = backend.product_input_dtype(f16 ? WeightFormat::kF16 : WeightFormat::kBF16);
    bytes_ = AsBytes(values_, dtype_);
  }
  MatrixView AsF32() { return View(values_, rows_, cols_, cols_); }
  MatrixView AsInputs() { return {bytes_.data(), dtype_, rows_, cols_}; }

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<float> values_;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Tokens choose at random, or all of them the same experts.
std::vector<float> LogitsOf(int64_t tokens, bool alike) {
  std::vector<float> logits = NormalFloats(tokens * kExperts, 100);
  for (int64_t i = 0; alike && i < tokens * kExperts; ++i) logits[i] = i % kExperts == 4 ? 9 : 0;
  return logits;
}

class CudaExpertProducts : public testing::TestWithParam<ProductsCase> {
 protected:
  void SetUp() override {
    for (std::unique_ptr<CudaDriver>& driver :
         DevicesUnderTest(/*few=*/true, true, GetParam().capability_major)) {
      devices_.emplace_back(std::move(driver));
    }
    if (devices_.empty()) GTEST_SKIP() << "no device of this compute capability";
  }
  Backend& backend() { return *devices_[0].backend; }
  bool f16() const { return GetParam().format == WeightFormat::kF16; }

  // Both products, apart, of the pairs of `tokens` tokens.
  std::vector<float> Run(Backend& backend, int64_t tokens, bool alike, bool in_f32,
                         bool has_shared) {
    const ProductsCase& c = GetParam();
    const ExpertWorkspace workspace(backend, kExperts, kPerToken, std::max(c.hidden, c.width));
    const PackedExperts up(backend, ShapeOf(c, c.width, c.hidden, 1), kExperts, 1);
    const PackedExperts down(backend, ShapeOf(c, c.hidden, c.width, c.num_slices), kExperts, 20);
    const PackedExperts shared(backend, ShapeOf(c, c.hidden, 40, c.num_slices), 1, 40);
    const std::vector<float> logits = LogitsOf(tokens, alike);
    Routing routing(tokens, kExperts, kPerToken);
    backend.RouteTokens(View(logits, tokens, kExperts, kExperts), {}, {}, {}, routing.view);
    const int64_t pairs = tokens * kPerToken;
    Rows x(backend, tokens, c.hidden, f16(), 101), inner(backend, pairs, c.width, f16(), 102),
        shared_x(backend, tokens, 40, f16(), 103);
    PaddedMatrix first = PaddedMatrix::Unwritten(pairs, c.width);
    PaddedMatrix second = PaddedMatrix::Unwritten(tokens, c.hidden);
    const auto of = [&](Rows& rows) { return in_f32 ? rows.AsF32() : rows.AsInputs(); };
    backend.MatMulExperts(of(x), up.all, routing.view, first.View());
    backend.SumExperts(of(inner), down.all, routing.view, of(shared_x),
                       has_shared ? &shared.all[0] : nullptr, second.View());
    Wait(backend);
    std::vector<float> all = first.Values();
    const std::vector<float> sums = second.Values();
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  }

  std::vector<CudaUnderTest> devices_;
};

TEST_P(CudaExpertProducts, AreThoseOfTheReference) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  // Tensor cores cut sums off, each of 16 of the depth.
  const double of_sums = GetParam().hidden > 200 ? 6e-6 : 2e-6;
  const double tolerance = IsQuantized(GetParam().format) ? 3e-3 : of_sums;
  for (const int64_t tokens : {1, 2, 9, 20, 64, 512}) {
    for (const bool alike : {false, true}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, alike " << alike);
      const bool has_shared = tokens % 2 == 0;
      std::vector<float> first;
      for (CudaUnderTest& cuda : devices_) {
        const std::vector<float> out = Run(*cuda.backend, tokens, alike, false, has_shared);
        if (first.empty()) first = out;
        ExpectSameBits(out, first);
      }
      const std::vector<float> want =
          Run(*NewReferenceBackend(*host), tokens, alike, false, has_shared);
      EXPECT_LT(RelativeError(first, want), tolerance);
    }
  }
}

TEST_P(CudaExpertProducts, OfRowsInF32AreTheSameBits) {
  for (const int64_t tokens : {3, 200}) {
    ExpectSameBits(Run(backend(), tokens, false, true, true),
                   Run(backend(), tokens, false, false, true));
  }
}

// Of a step of many pairs, and of another one with more in which tokens have other places.
TEST_P(CudaExpertProducts, OfARowDoNotDependOnTheOthers) {
  const ProductsCase& c = GetParam();
  const ExpertWorkspace workspace(backend(), kExperts, kPerToken, c.hidden);
  const PackedExperts weights(backend(), ShapeOf(c, c.width, c.hidden, 1), kExperts, 1);
  const auto run = [&](int64_t tokens) {
    const std::vector<float> logits = LogitsOf(tokens, false);
    Routing routing(tokens, kExperts, kPerToken);
    backend().RouteTokens(View(logits, tokens, kExperts, kExperts), {}, {}, {}, routing.view);
    Rows x(backend(), tokens, c.hidden, f16(), 101);
    PaddedMatrix out = PaddedMatrix::Unwritten(tokens * kPerToken, c.width);
    backend().MatMulExperts(x.AsInputs(), weights.all, routing.view, out.View());
    Wait(backend());
    const std::vector<float> values = out.Values();
    std::map<std::pair<int, int>, std::vector<float>> rows;  // of an expert and a token
    for (int expert = 0; expert < kExperts; ++expert) {
      for (int p = routing.expert_begin[expert]; p < routing.expert_begin[expert + 1]; ++p) {
        rows[{expert, routing.pair_token[p]}].assign(values.begin() + p * c.width,
                                                     values.begin() + (p + 1) * c.width);
      }
    }
    return rows;
  };
  const auto all = run(400);
  for (const auto& [pair, row] : run(160)) ExpectSameBits(row, all.at(pair));
}

// Rows that are gathered, and sums of pairs, may not all have room at once.
TEST_P(CudaExpertProducts, InPartsAreTheSameBits) {
  const ProductsCase& c = GetParam();
  CudaUnderTest& cuda = devices_[0];
  for (const int64_t tokens : {5, 200}) {
    const std::vector<float> logits = LogitsOf(tokens, false);
    const auto run = [&](bool in_parts) {
      const LinearShape down_shape = ShapeOf(c, 3 * cuda::kGemmTile + 10, c.width, c.num_slices);
      const PackedExperts up(*cuda.backend, ShapeOf(c, c.width, c.hidden, 1), kExperts, 1);
      const PackedExperts down(*cuda.backend, down_shape, kExperts, 20);
      const int64_t pairs = tokens * kPerToken;
      std::vector<uint16_t> inputs(in_parts ? 40 * 300 : pairs * 600);
      std::vector<int32_t> pair_at(pairs);
      std::vector<cuda::ExpertTile> tiles(100);
      std::vector<float> sums(pairs * cuda::kGemmTile * (in_parts ? 1 : 4));
      CudaProducts products(*cuda.driver, nullptr);
      CudaProductScratch product_scratch;
      product_scratch.inputs = inputs.data();
      product_scratch.inputs_count = static_cast<int64_t>(inputs.size());
      products.SetScratch(product_scratch);
      CudaExpertScratch scratch;
      scratch.pair_at = pair_at.data();
      scratch.max_pairs = pairs;
      scratch.tiles = tiles.data();
      scratch.max_tiles = static_cast<int64_t>(tiles.size());
      scratch.sums = sums.data();
      scratch.sums_count = static_cast<int64_t>(sums.size());
      CudaExperts experts(*cuda.driver, products);
      experts.SetScratch(scratch);
      Routing routing(tokens, kExperts, kPerToken);
      experts.RouteTokens(View(logits, tokens, kExperts, kExperts), {}, {}, {}, routing.view);
      Rows x(*cuda.backend, tokens, c.hidden, f16(), 101);
      PaddedMatrix first = PaddedMatrix::Unwritten(pairs, c.width);
      std::vector<float> second(tokens * down_shape.rows, 0.5F);
      experts.MatMulExperts(x.AsF32(), up.all, routing.view, first.View());
      experts.SumExperts(first.View(), down.all, routing.view, true,
                         View(second, tokens, down_shape.rows, down_shape.rows));
      Wait(*cuda.backend);
      return second;
    };
    ExpectSameBits(run(true), run(false));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaExpertProducts,
                         testing::Values(ProductsCase{WeightFormat::kBF16, 64, 128, 4},
                                         ProductsCase{WeightFormat::kBF16, 70, 72},
                                         ProductsCase{WeightFormat::kF16, 128, 60, 8},
                                         ProductsCase{WeightFormat::kBF16, 64, 128, 4, 9},
                                         ProductsCase{WeightFormat::kBF16, 390, 130, 1, 9},
                                         ProductsCase{WeightFormat::kF16, 136, 60, 8, 9},
                                         ProductsCase{WeightFormat::kInt8, 64, 302, 8, 9},
                                         ProductsCase{WeightFormat::kInt4, 136, 72, 1, 9},
                                         ProductsCase{WeightFormat::kInt8, 64, 96, 8},
                                         ProductsCase{WeightFormat::kInt4, 128, 64},
                                         ProductsCase{WeightFormat::kInt4, 96, 150, 4}));

// A rank may have no column of the experts, or of the shared one.
TEST(CudaSumExperts, OfNoColumnsIsTheSharedExpertsOrNothing) {
  CudaUnderTest cuda;
  const ProductsCase c{WeightFormat::kBF16, 64, 0};
  const ExpertWorkspace workspace(*cuda.backend, kExperts, kPerToken, 64);
  const PackedExperts down(*cuda.backend, ShapeOf(c, 64, 0, 1), kExperts, 20);
  const PackedExperts shared(*cuda.backend, ShapeOf(c, 64, 64, 1), 1, 40);
  const std::vector<float> logits = LogitsOf(2, false);
  Routing routing(2, kExperts, kPerToken);
  cuda.backend->RouteTokens(View(logits, 2, kExperts, kExperts), {}, {}, {}, routing.view);
  Rows x(*cuda.backend, 2, 64, false, 101);
  std::vector<float> out(2 * 64, NAN), want(2 * 64, NAN);
  const ConstMatrixView none(nullptr, DType::kBF16, 2 * kPerToken, 0);
  cuda.backend->SumExperts(none, down.all, routing.view, x.AsInputs(), &shared.all[0],
                           View(out, 2, 64, 64));
  cuda.backend->MatMul(x.AsInputs(), shared.all[0], View(want, 2, 64, 64));
  Wait(*cuda.backend);
  ExpectSameBits(out, want);
  cuda.backend->SumExperts(none, down.all, routing.view, {}, nullptr, View(out, 2, 64, 64));
  Wait(*cuda.backend);
  ExpectSameBits(out, std::vector<float>(out.size(), -0.0F));
}

// ---- rows

class CudaExpertRows : public CudaRowsTest {};
INSTANTIATE_TEST_SUITE_P(Rows, CudaExpertRows, Widths());

TEST_P(CudaExpertRows, AreScaledAndGetTheirExpertsBiases) {
  const int64_t width = GetParam();
  const std::vector<float> factors = RandomFloats(kRows * 2, 3);
  const std::vector<float> biases = RandomFloats(16 * width, 4);
  const std::vector<float> logits = RandomFloats(kRows * 16, 9);
  const auto run = [&](Backend& backend) {
    const ExpertWorkspace workspace(backend, 16, 2, 64);
    Routing routing(kRows, 16, 2);
    backend.RouteTokens(View(logits, kRows, 16, 16), {}, {}, {.normalizes = true}, routing.view);
    PaddedMatrix x(2 * kRows, width, 7), hidden(kRows, width, 8);
    backend.ScaleRows(factors.data(), x.View());
    backend.AddExpertBias(View(biases, 16, width, width), routing.view, x.View());
    backend.AddWeightedBiases(View(biases, 16, width, width), routing.view, hidden.View());
    Wait(backend);
    std::vector<float> all = x.Values();
    const std::vector<float> values = hidden.Values();
    all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  ExpectLikeReference(run, 1e-5);
}

TEST_P(CudaExpertRows, OfProductsAreScaledAndRounded) {
  const int64_t width = GetParam();
  const std::vector<float> factors = RandomFloats(kRows, 3);
  const std::vector<float> ones(kRows, 1.0F);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    CudaUnderTest cuda;
    PaddedMatrix gate_up(kRows, 2 * width, 3), gated = PaddedMatrix::Unwritten(kRows, width);
    RoundedMatrix x(dtype, kRows, width);
    cuda.backend->GatedActivation(Activation::kSilu, gate_up.View(), gated.View());
    cuda.backend->GatedActivation(Activation::kSilu, gate_up.View(), x.View());
    cuda.backend->ScaleRows(factors.data(), x.View());
    Wait(*cuda.backend);
    std::vector<float> want = gated.Values();
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = Rounded(want[i], dtype) * factors[i / width];
    }
    x.ExpectRounded(want);
  }
}

TEST_P(CudaExpertRows, ClampedSwigluIsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix gate_up(kRows, 2 * GetParam(), 3),
        out = PaddedMatrix::Unwritten(kRows, GetParam());
    backend.ClampedSwiglu(1.702F, 0.7F, gate_up.View(), out.View());
    Wait(backend);
    return out.Values();
  };
  ExpectLikeReference(run, kActivationTolerance);
}

}  // namespace
}  // namespace bulkhead
