// The instruction sets that the CPU kernels are compiled for: each source *simd.cc once per set, in
// that set's namespace. Host code declares their functions with BH_PER_ISA and picks one with
// BH_OF_ISA. Plain C++: kernel sources include this.
#pragma once

namespace bulkhead {

// kAvx512Vnni is kAvx512 except for int8 products, kAvx512Bf16 is kAvx512Vnni except for float
// products. kAvx512Amx is kAvx512Vnni except for int8 products of many rows and, if requested, bf16
// products: on CPUs with AMX vdpbf16ps, at half an instruction a cycle, has half of fma's rate.
// kPlainAmx is kPlain with AMX's tiles emulated, for tests.
enum class Isa { kPlain, kPlainAmx, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAvx512Amx };

constexpr bool HasAmx(Isa isa) { return isa == Isa::kPlainAmx || isa == Isa::kAvx512Amx; }

}  // namespace bulkhead

// A declaration in the namespaces of the sets that have all kernels. Inside namespace bulkhead.
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

// The same for kernels that use vpdpbusd if present: sources *int8_simd.cc.
#define BH_PER_ISA_AND_VNNI(...) \
  BH_PER_ISA(__VA_ARGS__)        \
  namespace avx512vnni {         \
  __VA_ARGS__;                   \
  }

// The same for float products, which use vdpbf16ps on kAvx512Bf16: sources *float_simd.cc.
#define BH_PER_ISA_AND_BF16(...) \
  BH_PER_ISA(__VA_ARGS__)        \
  namespace avx512bf16 {         \
  __VA_ARGS__;                   \
  }

// Products in tiles: sources *amx.cc, with the vectors of these sets.
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
