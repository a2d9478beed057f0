// A product on a CUDA device whose operands lie in its memory, for the tests of products by a
// library.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/bf16.h"
#include "memory/cuda_device.h"
#include "tests/kernels/cuda/packed_weight.h"

namespace bulkhead {

inline constexpr int kMaxTokens = 640;
inline constexpr int32_t kHead = 0;
inline constexpr HeadLayout kHeads{1, 1, 16, &kHead};

inline StepLimits LimitsFor(const LinearShape& shape, int max_tokens = kMaxTokens) {
  return {.max_num_batched_tokens = max_tokens,
          .max_num_seqs = 1,
          .max_model_len = 128,
          .max_inputs = shape.cols,
          .quantized_weights = IsQuantized(shape.format)};
}

// A backend, with cuBLASLt or without, a packed weight, and matrices of the most rows.
class LibraryProducts {
 public:
  LibraryProducts(std::unique_ptr<CudaDriver> driver, bool with_library, const ProductCase& c,
                  bool in_fp8 = false)
      : driver_(std::move(driver)),
        device_(std::move(CudaDevice::New(*driver_, 0)).value()),
        backend_(with_library ? NewCudaBackend(*device_, *driver_,
                                               std::move(NewCublasLt(*driver_)).value(), in_fp8)
                              : NewCudaBackend(*device_, *driver_)),
        shape_(c.shape),
        out_stride_(c.shape.rows + (in_fp8 ? 4 : 1)),
        workspace_(Allocate(backend_->WorkspaceBytes(LimitsFor(shape_), kHeads))),
        packed_(Allocate(backend_->PackedBytes(shape_))),
        other_packed_(Allocate(backend_->PackedBytes(shape_))),
        x_(Allocate(kMaxTokens * shape_.cols * 4)),
        out_(Allocate(kMaxTokens * out_stride_ * 4)),
        gated_(Allocate(kMaxTokens * shape_.rows / 2 * 4)) {
    backend_->SetWorkspace(workspace_.data(), LimitsFor(shape_), kHeads);
    device_->CopyFromHost(Values().data(), x_.data(), kMaxTokens * shape_.cols * 4);
    Fill(c, *backend_->Pack(linear()));
    EXPECT_TRUE(device_->Synchronize().ok());
  }

  Linear linear() const { return {shape_, packed_.data()}; }
  // Another weight of the same shape, not filled.
  Linear other() const { return {shape_, other_packed_.data()}; }
  MatrixView X(int64_t rows) { return {x_.data(), DType::kF32, rows, shape_.cols}; }
  MatrixView Out(int64_t rows) {
    return {out_.data(), DType::kF32, rows, shape_.rows, out_stride_};
  }
  absl::Status WarmUp(int64_t rows = kMaxTokens) {
    return backend_->WarmUpMatMul(X(rows), linear(), Out(rows));
  }
  // The same of another weight with as many rows and inputs, in no more groups.
  absl::Status WarmUpAnother(const ProductCase& c) {
    const Linear another{c.shape, other_packed_.data()};
    Fill(c, *backend_->Pack(another));
    return backend_->WarmUpMatMul(X(kMaxTokens), another, Out(kMaxTokens));
  }
  std::vector<float> Multiply(int64_t rows) {
    backend_->MatMul(X(rows), linear(), Out(rows));
    return Product(rows);
  }
  absl::Status WarmUpGated() {
    return backend_->WarmUpMatMulGated(X(kMaxTokens), linear(), GateUp(kMaxTokens));
  }
  // MatMulGated's output in f32, of the product's outputs as gates and ups.
  std::vector<float> MultiplyGated(int64_t rows, DType out_dtype) {
    return MultiplyGated(rows, out_dtype, linear());
  }
  std::vector<float> MultiplyGated(int64_t rows, DType out_dtype, const Linear& weight) {
    const int64_t count = rows * shape_.rows / 2;
    const MatrixView out(gated_.data(), out_dtype, rows, shape_.rows / 2);
    backend_->MatMulGated(Activation::kSilu, X(rows), weight, GateUp(rows), out);
    std::vector<float> values(count);
    device_->CopyToHost(gated_.data(), values.data(), count * DTypeBytes(out_dtype));
    const absl::Status done = device_->Synchronize();
    EXPECT_TRUE(done.ok()) << done;
    if (out_dtype == DType::kF32) return values;
    std::vector<uint16_t> bits(count);
    std::memcpy(bits.data(), values.data(), count * 2);
    for (int64_t i = 0; i < count; ++i) values[i] = F32OfBf16(bits[i]);
    return values;
  }
  // What lies in the first rows of the output.
  std::vector<float> Product(int64_t rows) {
    std::vector<float> all(rows * out_stride_);
    device_->CopyToHost(out_.data(), all.data(), static_cast<int64_t>(all.size()) * 4);
    const absl::Status done = device_->Synchronize();
    EXPECT_TRUE(done.ok()) << done;
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row) {
      const auto from = all.begin() + row * out_stride_;
      values.insert(values.end(), from, from + shape_.rows);
    }
    return values;
  }
  const std::vector<float>& Values() {
    if (values_.empty()) values_ = NormalFloats(kMaxTokens * shape_.cols, 9);
    return values_;
  }
  CudaDriver& driver() { return *driver_; }
  CudaDevice& device() { return *device_; }

 private:
  MatrixView GateUp(int64_t rows) { return {out_.data(), DType::kF32, rows, shape_.rows}; }
  Buffer Allocate(int64_t bytes) { return std::move(device_->Allocate(bytes)).value(); }

  const std::unique_ptr<CudaDriver> driver_;
  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<Backend> backend_;
  const LinearShape shape_;
  const int64_t out_stride_;  // as products in fp8 take it, or as little aligned as others do
  std::vector<float> values_;
  Buffer workspace_;
  Buffer packed_;
  Buffer other_packed_;
  Buffer x_;
  Buffer out_;
  Buffer gated_;
};

inline std::vector<float> GatedByReference(const ProductCase& c, std::vector<float> x,
                                           int64_t rows) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewReferenceBackend(*host);
  Packed packed(*backend, c, kMaxTokens);
  const int64_t width = c.shape.rows / 2;
  std::vector<float> gate_up(rows * c.shape.rows);
  std::vector<float> out(rows * width);
  backend->MatMulGated(Activation::kSilu, ViewOf(x, rows, c.shape.cols, c.shape.cols),
                       packed.linear, ViewOf(gate_up, rows, c.shape.rows, c.shape.rows),
                       ViewOf(out, rows, width, width));
  return out;
}

inline std::vector<float> ByReference(const ProductCase& c, std::vector<float> x, int64_t rows) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewReferenceBackend(*host);
  Packed packed(*backend, c, kMaxTokens);
  std::vector<float> out(rows * c.shape.rows);
  backend->MatMul(ViewOf(x, rows, c.shape.cols, c.shape.cols), packed.linear,
                  ViewOf(out, rows, c.shape.rows, c.shape.rows));
  return out;
}

}  // namespace bulkhead
