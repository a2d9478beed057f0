#include "tests/support/emulator/intrinsics.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "kernels/simd/number_format.h"
#include "tests/support/emulator/block.h"
#include "tests/support/emulator/peer_intrinsics.h"

namespace bulkhead::cuda {
namespace {

using emulator::AccessKind;
using emulator::Block;
using emulator::CurrentLane;
using emulator::Exchange;

Block& TheBlock() { return *CurrentLane().block; }

template <typename T>
T Brought(const Exchange& exchange, int lane, size_t offset = 0) {
  T value;
  std::memcpy(&value, exchange[lane].data() + offset, sizeof(value));
  return value;
}

template <typename T>
T ShuffleFrom(const char* what, T value, int lane) {
  const Exchange& all = TheBlock().ExchangeInWarp(what, &value, sizeof(value));
  if (lane < 0 || lane >= kWarp) TheBlock().Fault("a shuffle from outside the warp");
  return Brought<T>(all, lane);
}

// Element (row, column) of a tile held by the lanes, four per row, at `offset` of their exchanged
// values.
uint16_t TileNumber(const Exchange& all, int row, int column, size_t offset) {
  return Brought<uint16_t>(all, row * 4 + column / 2, offset + column % 2 * 2);
}

uint32_t Pair(uint16_t low, uint16_t high) { return uint32_t{high} << 16 | low; }

void LoadTilesAs(uint32_t (&r)[4], const void* address, const char* what, bool transposed,
                 const void* code) {
  TheBlock().CheckShared(address, 16, what);
  TheBlock().Access(address, 16, AccessKind::kReadTile, code);
  const Exchange& all = TheBlock().ExchangeInWarp(what, &address, sizeof(address));
  const int g = LaneIndex() / 4;
  const int j = LaneIndex() % 4;
  for (int tile = 0; tile < 4; ++tile) {
    const auto number = [&](int row, int column) {
      const auto* numbers = Brought<const std::byte*>(all, tile * 8 + row);
      uint16_t bits;
      std::memcpy(&bits, numbers + column * 2, sizeof(bits));
      return bits;
    };
    r[tile] = transposed ? Pair(number(2 * j, g), number(2 * j + 1, g))
                         : Pair(number(g, 2 * j), number(g, 2 * j + 1));
  }
}

// Lanes pass their elements widened: 8 of a, 4 of b.
template <typename Widen>
void Multiply(const char* what, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              const Widen& widen) {
  float brought[12];
  for (int i = 0; i < 12; ++i) {
    const uint32_t word = i < 8 ? a[i / 2] : b[i / 2 - 4];
    brought[i] = widen(static_cast<uint16_t>(word >> (i % 2 * 16)));
  }
  const Exchange& all = TheBlock().ExchangeInWarp(what, brought, sizeof(brought));
  const int g = LaneIndex() / 4;
  const int j = LaneIndex() % 4;
  for (int k = 0; k < 16; ++k) {
    // Inputs 2i and 2i + 1 are on lane i % 4 of a row or column, from 8 on in its last registers.
    const int lane = k % 8 / 2;
    const auto* const a_of_lane = reinterpret_cast<const float*>(all[4 * g + lane].data());
    const float upper = a_of_lane[k / 8 * 4 + k % 2];      // row g
    const float lower = a_of_lane[k / 8 * 4 + 2 + k % 2];  // row g + 8
    for (int i = 0; i < 2; ++i) {
      const auto* const b_of_lane =
          reinterpret_cast<const float*>(all[4 * (2 * j + i) + lane].data()) + 8;
      const float x = b_of_lane[k / 8 * 2 + k % 2];
      c[i] += upper * x;
      c[2 + i] += lower * x;
    }
  }
}

template <typename Shape>
Index3 ToIndex(const Shape& shape) {
  return {static_cast<unsigned>(shape[0]), static_cast<unsigned>(shape[1]),
          static_cast<unsigned>(shape[2])};
}

}  // namespace

Index1 ThreadIdx() { return {static_cast<unsigned>(CurrentLane().thread)}; }
Index3 BlockIdx() { return ToIndex(TheBlock().index()); }
Index3 BlockDim() { return ToIndex(TheBlock().shape().block); }
Index3 GridDim() { return ToIndex(TheBlock().shape().grid); }

void GridDependencySynchronize() { CurrentLane().awaited_previous = true; }

unsigned char* SharedMemory() { return reinterpret_cast<unsigned char*>(TheBlock().shared()); }

void __syncthreads() { TheBlock().SyncBlock(); }
void __syncwarp() { TheBlock().SyncWarp(); }
int __syncthreads_count(int value) {
  return TheBlock().CountInBlock("__syncthreads_count", value != 0);
}
float __shfl_sync(unsigned /*mask*/, float value, int lane) {
  return ShuffleFrom("__shfl_sync", value, lane);
}
float __shfl_xor_sync(unsigned /*mask*/, float value, int lane_mask) {
  return ShuffleFrom("__shfl_xor_sync", value, LaneIndex() ^ lane_mask);
}
int __shfl_xor_sync(unsigned /*mask*/, int value, int lane_mask) {
  return ShuffleFrom("__shfl_xor_sync of int", value, LaneIndex() ^ lane_mask);
}
unsigned __ballot_sync(unsigned /*mask*/, int predicate) {
  const Exchange& all = TheBlock().ExchangeInWarp("__ballot_sync", &predicate, sizeof(predicate));
  unsigned lanes = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    if (Brought<int>(all, lane) != 0) lanes |= 1U << lane;
  }
  return lanes;
}
int __popc(unsigned bits) { return std::popcount(bits); }

int atomicAdd(int* counter, int value) {
  TheBlock().CheckShared(counter, sizeof(*counter), "atomicAdd");
  TheBlock().Access(counter, sizeof(*counter), AccessKind::kAtomic, __builtin_return_address(0));
  return std::exchange(*counter, *counter + value);
}
unsigned long long atomicAdd(unsigned long long* counter, unsigned long long value) {  // NOLINT
  TheBlock().CheckShared(counter, sizeof(*counter), "atomicAdd");
  TheBlock().Access(counter, sizeof(*counter), AccessKind::kAtomic, __builtin_return_address(0));
  return std::exchange(*counter, *counter + value);
}

void CpAsync16(void* shared, const void* global, bool valid) {
  TheBlock().BeginCopy(shared, global, valid, __builtin_return_address(0));
}
void CpAsyncCommit() { TheBlock().CpAsyncCommit(); }
void CpAsyncWaitUntil(int left) { TheBlock().CpAsyncWait(left); }

void LdMatrixX4(uint32_t (&r)[4], const void* row) {
  LoadTilesAs(r, row, "LdMatrixX4", false, __builtin_return_address(0));
}
void LdMatrixX4Trans(uint32_t (&r)[4], const void* row) {
  LoadTilesAs(r, row, "LdMatrixX4Trans", true, __builtin_return_address(0));
}
uint32_t MovMatrixTrans(uint32_t value) {
  const Exchange& all = TheBlock().ExchangeInWarp("MovMatrixTrans", &value, sizeof(value));
  const int g = LaneIndex() / 4;
  const int j = LaneIndex() % 4;
  return Pair(TileNumber(all, 2 * j, g, 0), TileNumber(all, 2 * j + 1, g, 0));
}

void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Multiply("MmaBf16", c, a, b, [](uint16_t bits) { return bulkhead::F32OfBf16(bits); });
}
void MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Multiply("MmaF16", c, a, b, [](uint16_t bits) { return bulkhead::F32OfF16(bits); });
}

uint32_t Bf16Pair(float low, float high) { return Pair(Bf16OfF32(low), Bf16OfF32(high)); }
uint32_t F16Pair(float low, float high) { return Pair(F16OfF32(low), F16OfF32(high)); }
uint32_t FmaBf16Pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto of_half = [&](int shift) {
    const auto number = [shift](uint32_t pair) {
      return bulkhead::F32OfBf16(static_cast<uint16_t>(pair >> shift));
    };
    return std::fma(number(a), number(b), number(c));
  };
  return Bf16Pair(of_half(0), of_half(16));
}
float F32OfBf16(uint16_t bits) { return bulkhead::F32OfBf16(bits); }
float F32OfF16(uint16_t bits) { return bulkhead::F32OfF16(bits); }
// A GPU has a single canonical NaN.
uint16_t Bf16OfF32(float x) { return std::isnan(x) ? 0x7FFF : bulkhead::Bf16OfF32(x); }
uint16_t F16OfF32(float x) { return std::isnan(x) ? 0x7FFF : bulkhead::F16OfF32(x); }
float __uint_as_float(uint32_t bits) { return bulkhead::F32OfBits(bits); }
uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }

uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t which = selector >> (4 * i) & 7;
    r |= static_cast<uint32_t>(bytes >> (8 * which) & 0xFF) << (8 * i);
  }
  return r;
}

float Exp2(float x) {
  const float r = std::exp2(x);
  return r < 0x1p-126F ? 0.0F : r;
}

void LoadBytes(const void* from, void* to, size_t bytes) {
  TheBlock().CheckAligned(from, bytes, "a vector's load");
  TheBlock().Access(from, bytes, AccessKind::kRead, __builtin_return_address(0));
  std::memcpy(to, from, bytes);
}

void SendWords(uint32_t* to, const Words4& x) { TheBlock().SendWords(to, x.w); }
Words4 ReceivedWords(const uint32_t* at) {
  Words4 x;
  TheBlock().ReadWords(at, x.w);
  return x;
}
void ClearWords(uint32_t* at, uint32_t nothing) { TheBlock().ClearWords(at, nothing); }
void WaitTurn() { TheBlock().WaitTurn(); }
int64_t DeviceNanos() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void StoreBytes(void* to, const void* from, size_t bytes) {
  TheBlock().CheckAligned(to, bytes, "a vector's store");
  TheBlock().Access(to, bytes, AccessKind::kWrite, __builtin_return_address(0));
  std::memcpy(to, from, bytes);
}

}  // namespace bulkhead::cuda
