// How close the kernels come to the machine's ceilings: products and attention, with the ceilings
// measured in the same rounds, so that a busy machine slows both equally.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace bulkhead {

struct KernelResult {
  std::string name;    // "product/gate_up/1024x5632/1", "attend/4096/16x8x64/1"
  std::string format;  // of the weight, or of the cache
  std::string activation;
  double seconds = 0;  // median of one call
  // Achieved, the ceiling (best round of each), and the median over rounds of their quotient.
  double gb_per_s = 0;
  double read_gb_per_s = 0;
  double share_of_read = 0;
  double gop_per_s = 0;  // floating point or int8 operations
  double peak_gop_per_s = 0;
  double share_of_peak = 0;  // 0: this instruction set has no known peak
};

struct KernelsBenchOptions {
  int num_threads = 1;
  const char* isa = "auto";
  std::string filter;  // prefix of names
  bool quick = false;  // few rounds of the smaller ones: for tests
};

// Calls `on_result` after each measurement. INVALID_ARGUMENT for an unknown isa.
absl::Status MeasureKernels(const KernelsBenchOptions& options,
                            const std::function<void(const KernelResult&)>& on_result);

}  // namespace bulkhead
