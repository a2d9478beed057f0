// The instruction sets that the CPU kernels are compiled for: each source *simd.cc once per set, in
// the namespace of that set. Host code declares what they define with BH_PER_ISA and picks one with
// BH_OF_ISA. Plain: kernel sources include this.
#pragma once

namespace bulkhead {

// kAvx512Vnni is kAvx512 but for the products in int8, kAvx512Bf16 is that but for float products.
// kAvx512Amx is kAvx512Vnni but for products in int8 of many rows and, where asked for, in bf16: on
// CPUs with AMX vdpbf16ps, at half an instruction a cycle, has half of fma's rate. kPlainAmx is
// kPlain with AMX's tiles emulated, for tests.
enum class Isa { kPlain, kPlainAmx, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAvx512Amx };

constexpr bool HasAmx(Isa isa) { return isa == Isa::kPlainAmx || isa == Isa::kAvx512Amx; }

}  // namespace bulkhead

// A declaration, in the namespace of each set that all kernels have. Inside namespace bulkhead.
#define BH_PER_ISA(...) \
  namespace plain {     \
  __VA_ARGS__;          \
  }                     \
  namespace avx2 {      \
  __VA_ARGS__;          \
  }                     \
  namespace avx512 {    \
  __VA_ARGS__;          \
  }

// The same, of kernels that use vpdpbusd where it is: sources *int8_simd.cc.
#define BH_PER_ISA_AND_VNNI(...) \
  BH_PER_ISA(__VA_ARGS__)        \
  namespace avx512vnni {         \
  __VA_ARGS__;                   \
  }

// The same, of float products, which use vdpbf16ps on kAvx512Bf16: sources *float_simd.cc.
#define BH_PER_ISA_AND_BF16(...) \
  BH_PER_ISA(__VA_ARGS__)        \
  namespace avx512bf16 {         \
  __VA_ARGS__;                   \
  }

// Products in tiles: sources *amx.cc, beside the vectors of these.
#define BH_WITH_AMX(...) \
  namespace plain {      \
  __VA_ARGS__;           \
  }                      \
  namespace avx512vnni { \
  __VA_ARGS__;           \
  }

// The function or object `name` of `isa`.
#define BH_OF_ISA(isa, name)                                    \
  ((isa) >= ::bulkhead::Isa::kAvx512 ? ::bulkhead::avx512::name \
   : (isa) == ::bulkhead::Isa::kAvx2 ? ::bulkhead::avx2::name   \
                                     : ::bulkhead::plain::name)
#define BH_OF_ISA_OR_VNNI(isa, name) \
  ((isa) >= ::bulkhead::Isa::kAvx512Vnni ? ::bulkhead::avx512vnni::name : BH_OF_ISA(isa, name))
#define BH_OF_ISA_OR_BF16(isa, name) \
  ((isa) == ::bulkhead::Isa::kAvx512Bf16 ? ::bulkhead::avx512bf16::name : BH_OF_ISA(isa, name))
#define BH_OF_AMX(isa, name) \
  ((isa) == ::bulkhead::Isa::kAvx512Amx ? ::bulkhead::avx512vnni::name : ::bulkhead::plain::name)
