// The host version of kernels/cuda/device/intrinsics.h: each acts on the running lane
// (tests/support/emulator/block.h).
#pragma once

#include <math.h>
#include <stdint.h>

#include <cstring>

#include "memory/cuda_kernel.h"

#define BH_KERNEL(threads) static void
#define BH_KERNEL_SHARING(threads, blocks) static void
#define BH_DEVICE inline
#define BH_NO_UNROLL
#define BH_UNROLL

namespace bulkhead::cuda {

inline constexpr int kWarp = 32;

// ---- CUDA's built-in variables, constant per thread (gnu::const: read at most once)
struct Index3 {
  unsigned x, y, z;
};
struct Index1 {
  unsigned x;
};
[[gnu::const]] Index1 ThreadIdx();  // blocks have one dimension
[[gnu::const]] Index3 BlockIdx();
[[gnu::const]] Index3 BlockDim();
[[gnu::const]] Index3 GridDim();
#define threadIdx (::bulkhead::cuda::ThreadIdx())
#define blockIdx (::bulkhead::cuda::BlockIdx())
#define blockDim (::bulkhead::cuda::BlockDim())
#define gridDim (::bulkhead::cuda::GridDim())
inline int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarp; }
inline int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarp; }

// ---- the previous kernel: every thread waits for it, once
void GridDependencySynchronize();

// ---- shared memory
unsigned char* SharedMemory();

// ---- CUDA's built-in functions. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl*)
inline constexpr unsigned kFullMask = ~0U;
void __syncthreads();
int __syncthreads_count(int value);
void __syncwarp();
float __shfl_sync(unsigned mask, float value, int lane);
float __shfl_xor_sync(unsigned mask, float value, int lane_mask);
int __shfl_xor_sync(unsigned mask, int value, int lane_mask);
unsigned __ballot_sync(unsigned mask, int predicate);
int __popc(unsigned bits);
int atomicAdd(int* counter, int value);  // in shared memory
unsigned long long atomicAdd(unsigned long long* counter, unsigned long long value);  // NOLINT
float __uint_as_float(uint32_t bits);
uint32_t __float_as_uint(float x);
uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector);
// NOLINTEND(bugprone-reserved-identifier,cert-dcl*)

// ---- copies: executed when waited for, so that a missing wait reads poison
void CpAsync16(void* shared, const void* global, bool valid);
void CpAsyncCommit();
void CpAsyncWaitUntil(int left);
template <int kLeft>
void CpAsyncWait() {
  CpAsyncWaitUntil(kLeft);
}

// ---- tiles
void LdMatrixX4(uint32_t (&r)[4], const void* row);
void LdMatrixX4Trans(uint32_t (&r)[4], const void* row);
uint32_t MovMatrixTrans(uint32_t value);

// Sums in ascending k, in f32; a device's order and rounding differ.
void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// ---- numbers
uint32_t Bf16Pair(float low, float high);
uint32_t F16Pair(float low, float high);
// Rounded to f32 before.
uint32_t FmaBf16Pairs(uint32_t a, uint32_t b, uint32_t c);
inline uint32_t AndXor(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) ^ bits; }
float F32OfBf16(uint16_t bits);
float F32OfF16(uint16_t bits);
uint16_t Bf16OfF32(float x);
uint16_t F16OfF32(float x);
float Exp2(float x);
// Rounded to f32 before.
inline uint32_t FmaF16Pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto of_half = [&](int shift) {
    const auto number = [shift](uint32_t pair) {
      return F32OfF16(static_cast<uint16_t>(pair >> shift));
    };
    return fmaf(number(a), number(b), number(c));
  };
  return F16Pair(of_half(0), of_half(16));
}

// ---- 8 or 16 bytes at once
void LoadBytes(const void* from, void* to, size_t bytes);
void StoreBytes(void* to, const void* from, size_t bytes);
template <typename Vector>
Vector LoadVector(const void* at) {
  static_assert(alignof(Vector) == sizeof(Vector) && sizeof(Vector) <= 16);
  Vector x;
  LoadBytes(at, &x, sizeof(x));
  return x;
}
template <typename Vector>
void StoreVector(void* at, const Vector& x) {
  static_assert(alignof(Vector) == sizeof(Vector) && sizeof(Vector) <= 16);
  StoreBytes(at, &x, sizeof(x));
}
struct alignas(16) Words4 {
  uint32_t w[4];
};
inline Words4 LoadStream(const void* global) { return LoadVector<Words4>(global); }

template <typename Parameters>
[[gnu::no_sanitize("thread")]] void RunThread(const void* function, const void* parameters) {
  Parameters copy;
  std::memcpy(&copy, parameters, sizeof(copy));
  reinterpret_cast<void (*)(Parameters)>(const_cast<void*>(function))(copy);
}

template <int kThreads, typename Parameters>
CudaKernelOf<Parameters> KernelOf(const char* name, void (*kernel)(Parameters)) {
  return {{name, reinterpret_cast<const void*>(kernel), &RunThread<Parameters>, sizeof(Parameters),
           kThreads}};
}

}  // namespace bulkhead::cuda
