// The products of heads: every variant has the values of the oracle and the bits of the promised
// order, those of each head's product alone in f32.
#include "tests/kernels/matmul_heads/head_products.h"

namespace bulkhead {
namespace {

std::vector<HeadsCase> Cases() {
  std::vector<HeadsCase> cases;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kF16,
                                    WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const int64_t rows : {1, 3, 70, 300}) {
      cases.push_back({5, rows, 16, 32, 24, 40, format});
      cases.push_back({3, rows, 70, 45, 70, 45, format});
    }
  }
  cases.push_back({1, 2, 128, 200, 128, 200, WeightFormat::kBF16});
  cases.push_back({0, 2, 16, 32, 16, 32, WeightFormat::kBF16});
  return cases;
}

std::unique_ptr<Backend> Cpu(Device& device, const char* isa, int threads) {
  return std::move(NewCpuBackend(device, {.num_threads = threads,
                                          .isa = isa,
                                          .activation = ActivationDType::kInt8,
                                          .may_spin = false}))
      .value();
}

std::vector<float> RowsOf(std::unique_ptr<Backend> backend, const HeadsCase& c) {
  return HeadProducts(*backend, c).Run(0, c.rows);
}

TEST(MatMulHeads, HaveTheBitsOfThePromisedOrder) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  for (const HeadsCase& c : Cases()) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(c.format) << ", " << c.num_heads
                                    << " heads, " << c.rows << " rows");
    const std::vector<float> want = RowsOf(NewOrderedBackend(*device, ActivationDType::kInt8), c);
    ExpectSameBits(RowsOf(NewOrderedBackend(*device), c), want);
    ExpectNear(want, RowsOf(NewReferenceBackend(*device), c), 1e-4);
    for (const char* isa : {"plain", "avx2", "auto"}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << isa << ", threads " << threads);
        ExpectSameBits(RowsOf(Cpu(*device, isa, threads), c), want);
      }
    }
  }
}

TEST(MatMulHeads, OfARowDoNotDependOnTheOthers) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const HeadsCase c{4, 300, 48, 40, 50, 42, WeightFormat::kBF16};
  const std::unique_ptr<Backend> backend = Cpu(*device, "auto", 2);
  HeadProducts heads(*backend, c);
  const std::vector<float> all = heads.Run(0, 300);
  const int64_t cols = static_cast<int64_t>(all.size()) / 300;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {191, 3}, {250, 50}}) {
    ExpectSameBits(heads.Run(first, count),
                   {all.begin() + first * cols, all.begin() + (first + count) * cols});
  }
}

}  // namespace
}  // namespace bulkhead
