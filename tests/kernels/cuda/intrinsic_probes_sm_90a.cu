#include "tests/kernels/cuda/intrinsic_probes_sm_90a.h"

#include "intrinsics.h"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {
namespace {

constexpr int kDepth = 32;

// A tile's 16 bytes i of a row are at i ^ row % 8.
BH_DEVICE int At(int row, int column) {
  return row / 8 * 1024 + row % 8 * 128 + (column / 8 ^ row % 8) * 16 + column % 8 * 2;
}

template <bool kF16, bool kRows, int kCount, typename A>
BH_DEVICE void Multiply(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  if constexpr (kRows) {
    if constexpr (kF16) {
      RowProductF16(c, a, b, add);
    } else {
      RowProductBf16(c, a, b, add);
    }
  } else if constexpr (kF16) {
    ProductF16(c, a, b, add);
  } else {
    ProductBf16(c, a, b, add);
  }
}

template <bool kF16, int kColumns, bool kSharedA, bool kRows>
BH_KERNEL(kWarpgroup)
ProductKernel(ProbeParameters p) {
  GridDependencySynchronize();
  unsigned char* const rows = SharedMemory();
  unsigned char* const tiles = rows + 64 * 128;
  const auto* const a = reinterpret_cast<const uint16_t*>(p.in);
  const uint16_t* const b = a + 64 * kDepth;
  for (int i = int(threadIdx.x); i < 64 * kDepth; i += kWarpgroup) {
    *reinterpret_cast<uint16_t*>(rows + At(i / kDepth, i % kDepth)) = a[i];
  }
  for (int i = int(threadIdx.x); i < kDepth * kColumns; i += kWarpgroup) {
    const int k = kRows ? i % kDepth : i / kColumns;  // in the order of their places
    const int column = kRows ? i / kDepth : i % kColumns;
    const int at = kRows ? At(column, k) : column / 64 * (kDepth * 128) + At(k, column % 64);
    *reinterpret_cast<uint16_t*>(tiles + at) = b[k * kColumns + column];
  }
  FenceForProducts();
  __syncthreads();
  float sums[kColumns / 2];
  float further_sums[kColumns / 2];
  const auto begin = [](float(&of)[kColumns / 2]) {
    for (int i = 0; i < kColumns / 2; ++i) of[i] = 1.0F;
  };
  constexpr bool kAtOnce = kColumns < 256;  // else registers do not suffice
  auto& products = kAtOnce ? further_sums : sums;
  begin(sums);
  begin(products);
  const int row = WarpIndex() * 16 + LaneIndex() / 4;
  uint32_t of_lane[kDepth / 16][4];
  for (int k = 0; k < kDepth / 16; ++k) {
    for (int i = 0; i < 4; ++i) {
      const int at = (row + i % 2 * 8) * kDepth + 16 * k + i / 2 * 8 + LaneIndex() % 4 * 2;
      of_lane[k][i] = p.in[at / 2];
    }
  }
  BeginProducts();
  BH_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) {
    const uint64_t of_k =
        kRows ? TilesOf(tiles + 32 * k, 0) : FurtherTiles(TilesOf(tiles, kDepth * 128), 2 * k);
    if constexpr (kSharedA) {
      Multiply<kF16, kRows>(sums, TilesOf(rows + 32 * k, 0), of_k, true);
    } else {
      Multiply<kF16, kRows>(sums, of_lane[k], of_k, true);
    }
  }
  const auto put = [&](const float(&of)[kColumns / 2], int row0) {
    for (int i = 0; i < kColumns / 2; ++i) {
      const int column = i / 4 * 8 + LaneIndex() % 4 * 2 + i % 2;
      p.out[(row0 + row + i % 4 / 2 * 8) * kColumns + column] = __float_as_uint(of[i]);
    }
  };
  CommitProducts();
  if constexpr (!kAtOnce) {
    WaitForProducts<0>(sums);
    put(sums, 0);
    BeginProducts();
  }
  if constexpr (kSharedA) {
    Multiply<kF16, kRows>(products, TilesOf(rows, 0), TilesOf(tiles, kDepth * 128), false);
  } else {
    Multiply<kF16, kRows>(products, of_lane[0], TilesOf(tiles, kDepth * 128), false);
  }
  CommitProducts();
  if constexpr (kAtOnce) {
    WaitForProducts<1>(sums);
    put(sums, 0);
  }
  WaitForProducts<0>(products);
  put(products, 64);
}

BH_KERNEL(32) SumsOfF16PairsKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const uint32_t* const in = p.in + 3 * LaneIndex();
  p.out[LaneIndex()] = FmaF16Pairs(in[0], in[1], in[2]);
}

template <bool kF16, int kColumns, bool kSharedA, bool kRows>
Probe ProbeOf() {
  Probe probe = KernelOf<kWarpgroup>("product", ProductKernel<kF16, kColumns, kSharedA, kRows>);
  probe.kernel.only_capability = 90;
  return probe;
}
template <bool kF16, int kColumns, bool kRows>
Probe ProbeOf(bool shared_a) {
  return shared_a ? ProbeOf<kF16, kColumns, true, kRows>()
                  : ProbeOf<kF16, kColumns, false, kRows>();
}

template <bool kF16>
Probe ProbeOf(const ProductCase& of) {
  if (!of.b_is_rows) {
    return of.columns == 64 ? ProbeOf<kF16, 64, false>(of.shared_a)
                            : ProbeOf<kF16, 128, false>(of.shared_a);
  }
  switch (of.columns) {
    case 256:
      return ProbeOf<kF16, 256, true, true>();
    case 16:
      return ProbeOf<kF16, 16, true>(of.shared_a);
    case 32:
      return ProbeOf<kF16, 32, true>(of.shared_a);
    case 64:
      return ProbeOf<kF16, 64, true>(of.shared_a);
    default:
      return ProbeOf<kF16, 128, true>(of.shared_a);
  }
}

}  // namespace

Probe SumsOfF16PairsProbe() {
  Probe probe = KernelOf<32>("sums_of_f16_pairs", SumsOfF16PairsKernel);
  probe.kernel.only_capability = 90;
  return probe;
}

Probe ProductProbe(const ProductCase& of) {
  return of.is_f16 ? ProbeOf<true>(of) : ProbeOf<false>(of);
}

}  // namespace bulkhead::cuda
