// The products of heads: every variant has the values of the oracle and the bits of the promised
// order, those of each head's product alone in f32.
#include <cmath>

#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

constexpr int32_t kHeadToKv = 0;
constexpr float kUntouched = 12345.0F;

struct HeadsCase {
  int num_heads;
  int64_t rows;  // of x
  int64_t inputs;
  int64_t outputs;
  int64_t x_step;
  int64_t out_step;
  WeightFormat format;

  LinearShape shape() const {
    LinearShape shape{outputs, inputs, format, {0, inputs}};
    if (IsQuantized(format)) shape.groups.size = 32;
    return shape;
  }
};

// Weights of a case, packed, and a workspace; activations in int8, which these products ignore.
class Heads {
 public:
  Heads(Device& device, std::unique_ptr<Backend> backend, const HeadsCase& c)
      : backend_(std::move(backend)), case_(c) {
    const auto allocate = [&](int64_t bytes) {
      memory_.push_back(std::move(device.Allocate(std::max<int64_t>(64, bytes))).value());
      return memory_.back().data();
    };
    const StepLimits limits{.max_num_batched_tokens = 512,
                            .max_num_seqs = 1,
                            .max_model_len = 16,
                            .max_int8_inputs = 256,
                            .max_inputs = 256};
    const HeadLayout heads{1, 1, 16, &kHeadToKv};
    backend_->SetWorkspace(allocate(backend_->WorkspaceBytes(limits, heads)), limits, heads);
    for (int i = 0; i < c.num_heads; ++i) {
      const Linear linear{c.shape(), allocate(backend_->PackedBytes(c.shape()))};
      const std::vector<float> values =
          NormalFloats(c.outputs * c.inputs, static_cast<uint32_t>(i));
      backend_->Pack(linear)->PutRows(0, View(values, c.outputs, c.inputs, c.inputs));
      heads_.push_back(linear);
    }
  }

  // Rows [first, first + rows) of the case's x.
  std::vector<float> Run(int64_t first, int64_t rows) {
    const HeadsCase& c = case_;
    const int64_t x_cols = c.num_heads * c.x_step + 3, out_cols = c.num_heads * c.out_step + 5;
    const std::vector<float> x = NormalFloats(c.rows * x_cols, 100);
    std::vector<float> out(rows * out_cols, kUntouched);
    backend_->MatMulHeads(View(x, c.rows, x_cols, x_cols).Rows(first, rows), c.x_step, heads_,
                          View(out, rows, out_cols, out_cols), c.out_step);
    return out;
  }

 private:
  std::unique_ptr<Backend> backend_;
  HeadsCase case_;
  std::vector<Buffer> memory_;
  std::vector<Linear> heads_;
};

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

TEST(MatMulHeads, HaveTheBitsOfThePromisedOrder) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  for (const HeadsCase& c : Cases()) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(c.format) << ", " << c.num_heads
                                    << " heads, " << c.rows << " rows");
    const std::vector<float> want =
        Heads(*device, NewOrderedBackend(*device, ActivationDType::kInt8), c).Run(0, c.rows);
    ExpectSameBits(Heads(*device, NewOrderedBackend(*device), c).Run(0, c.rows), want);
    ExpectNear(want, Heads(*device, NewReferenceBackend(*device), c).Run(0, c.rows), 1e-4);
    for (const char* isa : {"plain", "avx2", "auto"}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << isa << ", threads " << threads);
        ExpectSameBits(Heads(*device, Cpu(*device, isa, threads), c).Run(0, c.rows), want);
      }
    }
  }
}

TEST(MatMulHeads, OfARowDoNotDependOnTheOthers) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const HeadsCase c{4, 300, 48, 40, 50, 42, WeightFormat::kBF16};
  Heads heads(*device, Cpu(*device, "auto", 2), c);
  const std::vector<float> all = heads.Run(0, 300);
  const int64_t cols = static_cast<int64_t>(all.size()) / 300;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {191, 3}, {250, 50}}) {
    ExpectSameBits(heads.Run(first, count),
                   {all.begin() + first * cols, all.begin() + (first + count) * cols});
  }
}

}  // namespace
}  // namespace bulkhead
