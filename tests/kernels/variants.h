// The backends under test, and comparisons of what they compute.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace bulkhead {

// The ordered reference, or a CPU instruction set with a number of threads.
struct Variant {
  std::string isa;  // empty: ordered
  int threads = 1;
  AttentionDType attention = AttentionDType::kF32;

  std::string Name() const;
  std::unique_ptr<Backend> Make(Device& device) const;
};
std::ostream& operator<<(std::ostream& out, const Variant& variant);

// Ordered, and every instruction set of this machine with 1 and 3 threads.
std::vector<Variant> AllVariants();
// The same of AttentionDType::kBf16.
std::vector<Variant> PairVariants();
// Of AttentionDType::kBf16Amx: ordered, the emulation, and the tiles where they are.
std::vector<Variant> TileVariants();

// `count` numbers that look normal (mean 0, variance 1), the same on every machine.
std::vector<float> RandomFloats(int64_t count, uint32_t seed);

// Fails the test at the first element that is too far away; see tolerance.h.
void ExpectNear(const std::vector<float>& actual, const std::vector<float>& oracle,
                double tolerance);
// Fails the test at the first element whose bits differ.
void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected);

}  // namespace bulkhead
