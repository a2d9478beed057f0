// Shared by the measurements: a backend on this machine, its clock, and the machine's ceilings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace bulkhead {

inline constexpr int kBenchRounds = 30;
// Bytes read per turn and thread.
inline constexpr int64_t kTurnBytes = int64_t{48} << 20;

struct Machine {
  static absl::StatusOr<std::unique_ptr<Machine>> Create(int num_threads, const char* isa);

  void SetWorkspace(const StepLimits& limits, const HeadLayout& heads);
  // GB/s, over one part of a buffer far larger than the caches, a different one each round.
  double ReadBandwidth(int round);
  // GFLOP/s in f32; 0 for plain, which has no known peak.
  double FmaPeak();
  // The same for products in bf16, by vdpbf16ps or, on CPUs with AMX, fma; else 0.
  double Bf16Peak();
  // The same for bf16 tiles; 0 without AMX.
  double Bf16TilePeak();
  // Giga-operations per second of int8 products: by vpdpbusd or, if there are enough rows, by
  // tiles; 0 without either.
  double Int8Peak(int64_t rows);

  std::unique_ptr<Device> device = NewHostDevice(0);
  std::unique_ptr<ThreadPool> pool;
  // Whether there is a backend for it.
  bool Has(ActivationDType activation) const {
    return backends[static_cast<int>(activation)] != nullptr;
  }
  Backend& BackendOf(ActivationDType activation) { return *backends[static_cast<int>(activation)]; }
  double PeakOf(ActivationDType activation, int64_t rows) {
    if (activation == ActivationDType::kInt8) return Int8Peak(rows);
    if (activation == ActivationDType::kBf16Amx) return Bf16TilePeak();
    return activation == ActivationDType::kBf16 ? Bf16Peak() : FmaPeak();
  }

  std::unique_ptr<Backend> backends[kNumActivationDTypes];  // by ActivationDType
  Buffer workspaces[kNumActivationDTypes];
  Isa isa = Isa::kPlain;
  Buffer read_buffer;
};

// Seconds; CPU time of the calling thread if it is the only one, so that other processes do not
// count.
double BenchNow();

template <typename Body>
double Seconds(const Body& body) {
  const double begin = BenchNow();
  body();
  return BenchNow() - begin;
}

double Median(std::vector<double> values);

}  // namespace bulkhead
