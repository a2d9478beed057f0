// Shared by the measurements on a GPU: a backend on it, its clock, and its ceilings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/cuda_device.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// Shapes and amounts of a measurement.
struct GpuBenchScale {
  int64_t hidden = 4096;  // shapes of Llama 3 8B
  int64_t ffn = 14336;
  int64_t vocab = 128256;
  int num_heads = 32;
  int num_kv_heads = 8;
  int head_dim = 128;
  int context = 4096;
  int num_seqs = 64;
  int num_experts = 8;                        // one per token, all of the same shape
  int64_t peak_size = 8192;                   // of the library's square product
  int64_t weight_bytes = int64_t{512} << 20;  // of all copies of a weight
  int64_t read_bytes = int64_t{2} << 30;      // read to measure the read ceiling
  double round_seconds = 5e-3;                // minimum duration of a round
  int rounds = 9;
};

class GpuMachine {
 public:
  // `driver` outlives the machine; `library` may be null. Measures the ceilings.
  static absl::StatusOr<std::unique_ptr<GpuMachine>> Create(CudaDriver& driver,
                                                            std::unique_ptr<GemmLibrary> library,
                                                            const GpuBenchScale& scale);

  // Seconds of one call of `body`, which enqueues work: the median of rounds, each one graph of
  // enough calls to make its launch negligible. `call` is the number of the call.
  absl::StatusOr<double> Seconds(const std::function<void(int64_t call)>& body);

  // Device memory with numbers between 1/128 and 2, read as bf16, or 1 and 2, as f16; and f32 rows.
  absl::StatusOr<Buffer> Numbers(int64_t bytes);
  absl::StatusOr<Buffer> Floats(int64_t count);

  CudaDriver& driver() { return driver_; }
  CudaDevice& device() { return *device_; }
  Backend& backend() { return *backend_; }  // uses only our own kernels
  GemmLibrary* library() { return library_.get(); }
  std::byte* library_workspace() { return library_workspace_.data(); }
  const HeadLayout& heads() const { return heads_; }
  const GpuBenchScale& scale() const { return scale_; }
  double read_gb_per_s() const { return read_gb_per_s_; }
  double peak_gop_per_s() const { return peak_gop_per_s_; }  // 0 without a library

 private:
  GpuMachine(CudaDriver& driver, std::unique_ptr<GemmLibrary> library, const GpuBenchScale& scale)
      : driver_(driver), library_(std::move(library)), scale_(scale) {}
  absl::Status SetUp();
  absl::Status MeasureReading();
  absl::Status MeasurePeak();

  CudaDriver& driver_;
  const std::unique_ptr<GemmLibrary> library_;
  const GpuBenchScale scale_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Backend> backend_;
  std::vector<int32_t> head_to_kv_;
  HeadLayout heads_;
  Buffer workspace_;
  Buffer library_workspace_;
  double read_gb_per_s_ = 0;
  double peak_gop_per_s_ = 0;
};

}  // namespace bulkhead
