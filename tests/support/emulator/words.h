// The words of kernels/cuda/device/words.h, which says what they mean, on the host: each acts on
// the lane that runs (tests/support/emulator/block.h).
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

// ---- who am I
int ThreadIndex();
int NumThreads();
int BlockX();
int BlockY();
int BlockZ();
int GridX();
inline int LaneIndex() { return ThreadIndex() % kWarp; }
inline int WarpIndex() { return ThreadIndex() / kWarp; }

// ---- the kernel before: every thread waits for it, once
void AwaitPrevious();

// ---- shared memory
unsigned char* SharedMemory();

// ---- meetings
void SyncBlock();
int SyncBlockCount(bool value);
void SyncWarp();
float Shuffle(float value, int lane);
float ShuffleXor(float value, int mask);
int ShuffleXor(int value, int mask);

// ---- a counter in shared memory
int AddShared(int* counter, int value);

// ---- copies: carried out when somebody waits for them, so that a missing wait reads poison
void CopyAsync16(void* shared, const void* global, bool valid);
void CommitCopies();
void WaitCopiesUntil(int left);
template <int kLeft>
void WaitCopies() {
  WaitCopiesUntil(kLeft);
}

// ---- tiles
void LoadTiles(uint32_t (&r)[4], const void* row);
void LoadTilesTransposed(uint32_t (&r)[4], const void* row);
uint32_t TransposeTile(uint32_t value);

// Sums in ascending k, in f32; a device's order and rounding differ.
void MultiplyBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MultiplyF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// ---- numbers
uint32_t Bf16Pair(float low, float high);
uint32_t F16Pair(float low, float high);
float F32OfBf16(uint16_t bits);
float F32OfF16(uint16_t bits);
uint16_t Bf16OfF32(float x);
uint16_t F16OfF32(float x);
float F32OfBits(uint32_t bits);
uint32_t BitsOfF32(float x);
uint32_t SelectBytes(uint32_t a, uint32_t b, uint32_t selector);
float Exp2(float x);

// ---- 16 bytes at once
struct alignas(16) Words4 {
  uint32_t w[4];
};
Words4 LoadStream(const void* global);

template <typename Parameters>
void RunThread(const void* function, const void* parameters) {
  Parameters copy;
  std::memcpy(&copy, parameters, sizeof(copy));
  reinterpret_cast<void (*)(Parameters)>(const_cast<void*>(function))(copy);
}

template <typename Parameters>
CudaKernelOf<Parameters> KernelOf(const char* name, void (*kernel)(Parameters)) {
  return {
      {name, reinterpret_cast<const void*>(kernel), &RunThread<Parameters>, sizeof(Parameters)}};
}

}  // namespace bulkhead::cuda
