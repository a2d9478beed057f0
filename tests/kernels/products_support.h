// A CPU backend on a host device with packed weights, for the tests of the products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {

// What DType `dtype` holds for x, widened again.
inline float Rounded(float x, DType dtype) {
  if (dtype == DType::kBF16) return F32OfBf16(Bf16OfF32(x));
  if (dtype == DType::kF16) return F32OfF16(F16OfF32(x));
  return x;
}

// `values` as numbers of `dtype`, in memory of its own.
inline std::vector<std::byte> AsBytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = dtype == DType::kBF16 ? Bf16OfF32(values[i]) : F16OfF32(values[i]);
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[i * 4], &values[i], 4);
    } else {
      std::memcpy(&bytes[i * 2], &half, 2);
    }
  }
  return bytes;
}

class CpuFixture {
 public:
  explicit CpuFixture(Isa isa, int num_threads, int max_rows = 128,
                      ActivationDType activation = ActivationDType::kF32,
                      int64_t max_int8_inputs = 0)
      : device_(NewHostDevice(0)) {
    CpuBackendOptions options;
    options.num_threads = num_threads;
    options.isa = IsaName(isa);
    options.may_spin = false;
    options.activation = activation;
    backend_ = std::move(NewCpuBackend(*device_, options)).value();
    StepLimits limits{max_rows, max_rows, 128, max_int8_inputs};
    limits.min_group = 16;
    limits.bf16_inputs = activation == ActivationDType::kBf16;
    limits.bf16_tiles = activation == ActivationDType::kBf16Amx;
    limits.max_inputs = kMaxInputs;
    const HeadLayout heads{1, 1, 16, &kHead};
    workspace_ = Allocate(backend_->WorkspaceBytes(limits, heads));
    backend_->SetWorkspace(workspace_.data(), limits, heads);
  }

  Backend& backend() { return *backend_; }
  Buffer Allocate(int64_t bytes) { return std::move(device_->Allocate(bytes)).value(); }

  // A packed weight from rows in `source` format; `memory` holds it.
  Linear Pack(const LinearShape& shape, const std::vector<float>& values, DType source,
              Buffer& memory) {
    memory = Allocate(backend_->PackedBytes(shape));
    const Linear linear{shape, memory.data()};
    const std::vector<std::byte> bytes = AsBytes(values, source);
    backend_->Pack(linear)->PutRows(0,
                                    ConstMatrixView(bytes.data(), source, shape.rows, shape.cols));
    return linear;
  }

 private:
  static constexpr int32_t kHead = 0;
  static constexpr int64_t kMaxInputs = 8192;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  Buffer workspace_;
};

inline std::vector<float> NormalFloats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

inline MatrixView ViewOf(std::vector<float>& values, int64_t rows, int64_t cols, int64_t stride) {
  return MatrixView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, rows, cols, stride);
}

inline ConstMatrixView RowOf(const std::vector<float>& values) {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 1,
                         values.size());
}

}  // namespace bulkhead
