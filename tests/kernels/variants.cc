#include "tests/kernels/variants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/isa.h"

namespace bulkhead {

std::string Variant::Name() const {
  return isa.empty() ? "ordered" : isa + "_" + std::to_string(threads);
}

std::unique_ptr<Backend> Variant::Make(Device& device) const {
  if (isa.empty()) return NewOrderedBackend(device, ActivationDType::kF32, attention);
  auto backend = NewCpuBackend(
      device, CpuBackendOptions{threads, isa.c_str(), ActivationDType::kF32, attention, false});
  BH_CHECK(backend.ok());
  return *std::move(backend);
}

std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  return out << variant.Name();
}

std::vector<Variant> AllVariants() {
  std::vector<Variant> variants{Variant{}};
  for (const Isa isa : PresentIsas()) {
    variants.push_back({IsaName(isa), 1});
    variants.push_back({IsaName(isa), 3});
  }
  return variants;
}

std::vector<Variant> PairVariants() {
  std::vector<Variant> variants = AllVariants();
  for (Variant& variant : variants) variant.attention = AttentionDType::kBf16;
  return variants;
}

std::vector<Variant> TileVariants() {
  std::vector<Variant> variants{{"", 1, AttentionDType::kBf16Amx}};
  for (const Isa isa : {Isa::kPlainAmx, Isa::kAvx512Amx}) {
    if (!CheckBf16Tiles(isa, ActivationDType::kBf16Amx).ok()) continue;
    variants.push_back({IsaName(isa), 1, AttentionDType::kBf16Amx});
    variants.push_back({IsaName(isa), 3, AttentionDType::kBf16Amx});
  }
  return variants;
}

std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  // Sums of 4 uniform numbers: no library's distribution is the same everywhere.
  uint64_t state = seed * uint64_t{0x9e3779b97f4a7c15} + 1;
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    int64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<int64_t>(state >> 40);
    }
    number = static_cast<float>((static_cast<double>(sum) / (1 << 24) - 2.0) * 1.7320508);
  }
  return numbers;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& oracle,
                double tolerance) {
  ASSERT_EQ(actual.size(), oracle.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance * (1 + std::fabs(oracle[i]));
    ASSERT_LE(std::fabs(double{actual[i]} - oracle[i]), allowed)
        << "element " << i << ": " << actual[i] << " for " << oracle[i];
  }
}

void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(float)), 0)
        << "element " << i << ": " << std::hexfloat << actual[i] << " for " << expected[i];
  }
}

}  // namespace bulkhead
