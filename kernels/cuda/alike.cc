#include "kernels/cuda/alike.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "kernels/simd/number_format.h"
#include "memory/bf16.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxRows = 64;

float NumberAt(const std::byte* at, DType dtype) {
  if (dtype == DType::kF32) {
    float number;
    std::memcpy(&number, at, sizeof(number));
    return number;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kF16 ? F32OfF16(bits) : F32OfBf16(bits);
}

bool AreAlike(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  float largest = 0;
  for (const float number : b) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) && !std::isfinite(b[i])) continue;
    if (!(std::abs(a[i] - b[i]) <= tolerance * largest)) return false;
  }
  return true;
}

}  // namespace

bool HasWarpgroups(const CudaProperties& gpu) {
  const char* const asked = std::getenv("BULKHEAD_WARPGROUPS");
  return gpu.capability() == 90 && (asked == nullptr || absl::string_view(asked) != "0");
}

absl::StatusOr<bool> ComputeAlike(CudaDriver& driver, MatrixView out, float tolerance,
                                  absl::FunctionRef<void()> first,
                                  absl::FunctionRef<void()> second) {
  const int64_t count = std::min(out.rows(), kMaxRows);
  const int64_t number_bytes = out.dtype() == DType::kF32 ? 4 : 2;
  const int64_t row_bytes = out.cols() * number_bytes;
  const auto row = [&](int64_t i) { return out.Rows(i * out.rows() / count, 1).data(); };
  std::vector<std::byte> bytes(count * row_bytes);
  std::vector<float> numbers[2];
  for (std::vector<float>& of_one : numbers) {
    for (int64_t i = 0; i < count; ++i) driver.Fill(row(i), std::byte{0xFF}, row_bytes);
    &of_one == numbers ? first() : second();
    for (int64_t i = 0; i < count; ++i) {
      driver.CopyToHost(row(i), bytes.data() + i * row_bytes, row_bytes);
    }
    BH_RETURN_IF_ERROR(driver.Synchronize());
    for (size_t at = 0; at < bytes.size(); at += number_bytes) {
      of_one.push_back(NumberAt(bytes.data() + at, out.dtype()));
    }
  }
  return AreAlike(numbers[0], numbers[1], tolerance);
}

}  // namespace bulkhead
