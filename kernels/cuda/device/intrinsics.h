// Building blocks of kernels: CUDA's own built-ins, and functions around PTX instructions. The
// emulator of the tests has a header of the same name that implements all of them for the host;
// CMake's include path chooses. Nothing else in kernels/cuda may use inline PTX. Kernels are blocks
// of a multiple of 32 threads in one dimension.
#pragma once

#include <math.h>
#include <stdint.h>

#include <nv/target>

#include "memory/cuda_kernel.h"

#define BH_KERNEL(threads) BH_KERNEL_SHARING(threads, 1)
// At least `blocks` blocks per multiprocessor.
#define BH_KERNEL_SHARING(threads, blocks) static __global__ __launch_bounds__(threads, blocks) void
#define BH_DEVICE __device__ __forceinline__
#define BH_UNROLL _Pragma("unroll")
#define BH_NO_UNROLL _Pragma("unroll 1")

namespace bulkhead::cuda {

inline constexpr int kWarp = 32;

// ---- this thread's position in its warp and block (threadIdx, blockIdx, blockDim, gridDim are
// CUDA's own)
BH_DEVICE int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarp; }
BH_DEVICE int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarp; }

// ---- programmatic dependent launch: a kernel begins while the previous one in the stream still
// runs. Each of its threads waits once, before it reads what that one wrote; until then it may only
// read what no kernel writes. After the call the next kernel may begin.
// (cudaGridDependencySynchronize and cudaTriggerProgrammaticLaunchCompletion, which sm_80 lacks.)
BH_DEVICE void GridDependencySynchronize() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::
                                                    : "memory");
                                   asm volatile("griddepcontrol.launch_dependents;" ::
                                                    : "memory");))
}

// ---- shared memory of the block, 1024-byte aligned, initially undefined
extern __shared__ __align__(1024) unsigned char bh_shared_memory[];
BH_DEVICE unsigned char* SharedMemory() { return bh_shared_memory; }
BH_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// ---- CUDA's own: __syncthreads, __syncthreads_count, __syncwarp, __shfl_sync, __shfl_xor_sync,
// __ballot_sync (all lanes take part), __popc, atomicAdd on shared memory (threads come in any
// order; results that must not depend on it are sorted afterwards), __uint_as_float,
// __float_as_uint, __byte_perm
inline constexpr unsigned kFullMask = ~0U;

// ---- asynchronous copies of 16 bytes to shared memory; both ends 16-byte aligned. If not valid,
// nothing is read, and the 16 bytes become zero.
BH_DEVICE void CpAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
BH_DEVICE void CpAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `kLeft` groups of this thread are in flight; a kernel waits for all it began.
template <int kLeft>
BH_DEVICE void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// ---- tiles of 8x8 numbers of 16 bits. Lane i names row i % 8 of tile i / 8, 16-byte aligned in
// shared memory; r[j] becomes this lane's two numbers of tile j: row lane / 4, columns 2 (lane % 4)
// and the next one, of the tile or of its transpose.
BH_DEVICE void LdMatrixX4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
BH_DEVICE void LdMatrixX4Trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
BH_DEVICE uint32_t MovMatrixTrans(uint32_t value) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(value));
  return r;
}

// c [16][8] += a [16][16] b [16][8]; g = lane / 4, j = lane % 4:
//   a[0..3]  rows g, g + 8, g, g + 8; columns 2j and 2j + 1, for the last two 8 more
//   b[0..1]  column g; rows 2j and 2j + 1, for the last one 8 more
//   c[0..3]  row g (twice) and g + 8 (twice); columns 2j, 2j + 1
BH_DEVICE void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
BH_DEVICE void MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- numbers. Conversions round to nearest even; a pair has its first number in the low half.
BH_DEVICE uint32_t Bf16Pair(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
BH_DEVICE uint32_t F16Pair(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// a b + c in each half, rounded once; subnormals are not flushed.
BH_DEVICE uint32_t FmaBf16Pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
BH_DEVICE uint32_t FmaF16Pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// (a & mask) ^ bits in one instruction; the compiler uses two if both are constants.
BH_DEVICE uint32_t AndXor(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
  return r;
}
BH_DEVICE float F32OfBf16(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }
BH_DEVICE float F32OfF16(uint16_t bits) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
BH_DEVICE uint16_t Bf16OfF32(float x) { return static_cast<uint16_t>(Bf16Pair(x, 0.0F)); }
BH_DEVICE uint16_t F16OfF32(float x) { return static_cast<uint16_t>(F16Pair(x, 0.0F)); }
BH_DEVICE float Exp2(float x) {  // to 2 ulp; 0 if the result is subnormal
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// ---- 8 or 16 bytes at once, aligned to their size: a struct of that size and alignment
template <typename Vector>
BH_DEVICE Vector LoadVector(const void* at) {
  return *static_cast<const Vector*>(at);
}
template <typename Vector>
BH_DEVICE void StoreVector(void* at, const Vector& x) {
  *static_cast<Vector*>(at) = x;
}
// The same for 16 bytes that are read once: not cached in L1.
struct alignas(16) Words4 {
  uint32_t w[4];
};
BH_DEVICE Words4 LoadStream(const void* global) {
  Words4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
               : "l"(global));
  return r;
}

// Makes a CudaKernel of a function whose BH_KERNEL has this many threads.
template <int kThreads, typename Parameters>
CudaKernelOf<Parameters> KernelOf(const char* name, void (*kernel)(Parameters)) {
  return {{name, reinterpret_cast<const void*>(kernel), nullptr, sizeof(Parameters), kThreads}};
}

}  // namespace bulkhead::cuda
