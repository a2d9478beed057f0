// Device code for compute capability 9.0 only (sm_90a): warpgroup products (wgmma). The emulator of
// the tests has a header of the same name.
#pragma once

#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kWarpgroup = 128;  // threads

// ---- registers: all threads of a warpgroup have N from now on, fewer or more than before; taking
// waits until others have given. Multiples of 8.
template <int kRegisters>
BH_DEVICE void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
BH_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- asynchronous products of a warpgroup: c [64][kN] += a [64][16] b [16][kN], 16-bit numbers.
// Warp w of the four has rows from 16 w on, laid out as MmaBf16's 16 rows: c[4 t ..] has the
// columns from 8 t on, a the same. b is in shared memory, its columns adjacent: tiles of 8 rows and
// 64 columns, 128 bytes a row, whose 16 bytes i are at i ^ row % 8; 1024-byte aligned. Tiles of the
// next rows are adjacent, those of the next columns `column_step` bytes further.
BH_DEVICE uint64_t TilesOf(const void* shared, int column_step) {
  return uint64_t{SharedAddress(shared) >> 4 & 0x3FFFU} |
         uint64_t{static_cast<uint32_t>(column_step) >> 4} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
// The tiles from row 8 `tiles` on.
BH_DEVICE uint64_t FurtherTiles(uint64_t tiles_of, int tiles) {
  return tiles_of + static_cast<uint64_t>(tiles * (1024 >> 4));
}
// The columns of row tiles from `columns` on, a multiple of 16 below 64.
BH_DEVICE uint64_t FurtherColumns(uint64_t tiles_of, int columns) {
  return tiles_of + static_cast<uint64_t>(columns / 8);
}

// Makes writes to shared memory visible to products: by each writing thread, before the barrier.
BH_DEVICE void FenceForProducts() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int kCount>
BH_DEVICE void HoldRegisters(float (&c)[kCount]) {
  BH_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
// Before the first product after c or a was written by other code.
BH_DEVICE void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
BH_DEVICE void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kLeft groups are in flight, none of which writes c.
template <int kLeft, int kCount>
BH_DEVICE void WaitForProducts(float (&c)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  HoldRegisters(c);
}

// The same while c's sums are in flight: inputs of earlier groups may be overwritten.
template <int kLeft>
BH_DEVICE void WaitForEarlierProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

#define BH_C8(i)                                                                              \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define BH_C32(i) BH_C8(i), BH_C8(i + 8), BH_C8(i + 16), BH_C8(i + 24)
#define BH_R32                                                                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31"
#define BH_R64                                                                                    \
  BH_R32                                                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54," \
  "%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define BH_PRODUCT_64(numbers)                                                      \
  asm volatile(                                                                     \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." numbers "." numbers " {" BH_R32 \
      "}, {%32,%33,%34,%35}, %36, add, 1, 1, 1;\n}\n"                               \
      : BH_C32(0)                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}))
#define BH_PRODUCT_128(numbers)                                                      \
  asm volatile(                                                                      \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." numbers "." numbers " {" BH_R64 \
      "}, {%64,%65,%66,%67}, %68, add, 1, 1, 1;\n}\n"                                \
      : BH_C32(0), BH_C32(32)                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}))

// add: false: c is overwritten with the product.
BH_DEVICE void ProductBf16(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  BH_PRODUCT_64("bf16");
}
BH_DEVICE void ProductBf16(float (&c)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
  BH_PRODUCT_128("bf16");
}
BH_DEVICE void ProductF16(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  BH_PRODUCT_64("f16");
}
BH_DEVICE void ProductF16(float (&c)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
  BH_PRODUCT_128("f16");
}

// The same with `a` in shared memory: adjacent rows, 128 bytes per row of 64 numbers, tiles of 8
// rows as in b. TilesOf(rows + 32 i bytes): its columns from 16 i on.
#define BH_SHARED_PRODUCT_64(numbers)                                               \
  asm volatile(                                                                     \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." numbers "." numbers " {" BH_R32 \
      "}, %32, %33, add, 1, 1, 0, 1;\n}\n"                                          \
      : BH_C32(0)                                                                   \
      : "l"(a), "l"(b), "r"(int{add}))
#define BH_SHARED_PRODUCT_128(numbers)                                               \
  asm volatile(                                                                      \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." numbers "." numbers " {" BH_R64 \
      "}, %64, %65, add, 1, 1, 0, 1;\n}\n"                                           \
      : BH_C32(0), BH_C32(32)                                                        \
      : "l"(a), "l"(b), "r"(int{add}))
BH_DEVICE void ProductBf16(float (&c)[32], uint64_t a, uint64_t b, bool add) {
  BH_SHARED_PRODUCT_64("bf16");
}
BH_DEVICE void ProductBf16(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  BH_SHARED_PRODUCT_128("bf16");
}
BH_DEVICE void ProductF16(float (&c)[32], uint64_t a, uint64_t b, bool add) {
  BH_SHARED_PRODUCT_64("f16");
}
BH_DEVICE void ProductF16(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  BH_SHARED_PRODUCT_128("f16");
}

// The same with b transposed: [kN][16], rows as those of `a` in shared memory; kN may be 16, 32, 64
// or 128.
#define BH_C16(i) BH_C8(i), BH_C8(i + 8)
#define BH_C64(i) BH_C32(i), BH_C32(i + 32)
#define BH_R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define BH_R16 BH_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define BH_ROW_PRODUCT(numbers, rows, names, a_names, b_name, add_name, sums)                     \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_name                                   \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32." numbers "." numbers " {" names \
               "}, {" a_names "}, " b_name ", add, 1, 1, 0;\n}\n"                                 \
               : sums                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}))
#define BH_SHARED_ROW_PRODUCT(numbers, rows, names, a_name, b_name, add_name, sums)               \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_name                                   \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32." numbers "." numbers " {" names \
               "}, " a_name ", " b_name ", add, 1, 1, 0, 0;\n}\n"                                 \
               : sums                                                                             \
               : "l"(a), "l"(b), "r"(int{add}))
#define BH_ROW_PRODUCTS(Name, numbers)                                                  \
  BH_DEVICE void Name(float(&c)[8], const uint32_t(&a)[4], uint64_t b, bool add) {      \
    BH_ROW_PRODUCT(numbers, "16", BH_R8, "%8,%9,%10,%11", "%12", "%13", BH_C8(0));      \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[16], const uint32_t(&a)[4], uint64_t b, bool add) {     \
    BH_ROW_PRODUCT(numbers, "32", BH_R16, "%16,%17,%18,%19", "%20", "%21", BH_C16(0));  \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[32], const uint32_t(&a)[4], uint64_t b, bool add) {     \
    BH_ROW_PRODUCT(numbers, "64", BH_R32, "%32,%33,%34,%35", "%36", "%37", BH_C32(0));  \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[64], const uint32_t(&a)[4], uint64_t b, bool add) {     \
    BH_ROW_PRODUCT(numbers, "128", BH_R64, "%64,%65,%66,%67", "%68", "%69", BH_C64(0)); \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[8], uint64_t a, uint64_t b, bool add) {                 \
    BH_SHARED_ROW_PRODUCT(numbers, "16", BH_R8, "%8", "%9", "%10", BH_C8(0));           \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[16], uint64_t a, uint64_t b, bool add) {                \
    BH_SHARED_ROW_PRODUCT(numbers, "32", BH_R16, "%16", "%17", "%18", BH_C16(0));       \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[32], uint64_t a, uint64_t b, bool add) {                \
    BH_SHARED_ROW_PRODUCT(numbers, "64", BH_R32, "%32", "%33", "%34", BH_C32(0));       \
  }                                                                                     \
  BH_DEVICE void Name(float(&c)[64], uint64_t a, uint64_t b, bool add) {                \
    BH_SHARED_ROW_PRODUCT(numbers, "128", BH_R64, "%64", "%65", "%66", BH_C64(0));      \
  }
BH_ROW_PRODUCTS(RowProductBf16, "bf16")
BH_ROW_PRODUCTS(RowProductF16, "f16")

// For 256 rows of b, with `a` in shared memory.
#define BH_R128                                                             \
  BH_R64                                                                    \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"        \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"        \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110" \
  ",%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define BH_C128 BH_C64(0), BH_C64(64)
#define BH_ROW_PRODUCTS_256(Name, numbers)                                           \
  BH_DEVICE void Name(float(&c)[128], uint64_t a, uint64_t b, bool add) {            \
    BH_SHARED_ROW_PRODUCT(numbers, "256", BH_R128, "%128", "%129", "%130", BH_C128); \
  }
BH_ROW_PRODUCTS_256(RowProductBf16, "bf16")
BH_ROW_PRODUCTS_256(RowProductF16, "f16")

}  // namespace bulkhead::cuda
