#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/matmul/bf16_check.h"

namespace bulkhead {
namespace {

constexpr Isa kAll[] = {Isa::kPlain,      Isa::kPlainAmx,   Isa::kAvx2,     Isa::kAvx512,
                        Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAvx512Amx};

// Linux saves the 8 KiB of tiles only for processes that asked: arch_prctl(2) and the kernel's
// Documentation/arch/x86/xstate.rst.
bool AskForTiles() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
  return granted;
}

// The brand string of CPUID.
std::string CpuName() {
  constexpr unsigned kFirstLeaf = 0x80000002;
  char name[3 * 16 + 1] = {};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned words[4] = {};
    __get_cpuid(kFirstLeaf + i, &words[0], &words[1], &words[2], &words[3]);
    std::memcpy(name + i * sizeof(words), words, sizeof(words));
  }
  return std::string(absl::StripAsciiWhitespace(name));
}

bool HasTileInstructions() {
  return IsaPresent(Isa::kAvx512Bf16) && __builtin_cpu_supports("amx-tile") &&
         __builtin_cpu_supports("amx-int8");
}

Bf16TilesFound FindBf16Tiles() {
  Bf16TilesFound found;
  found.amx = HasTileInstructions();
  found.amx_bf16 = found.amx && __builtin_cpu_supports("amx-bf16");
  found.permitted = found.amx_bf16 && AskForTiles();
  found.as_defined = found.permitted && Bf16TilesAreEmulated();
  return found;
}

}  // namespace

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kPlainAmx:
      return "plain_amx";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAvx512Amx:
      return "avx512amx";
  }
  return "unknown";
}

// The builtin asks the operating system (XGETBV) as well as the CPU.
bool IsaPresent(Isa isa) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::kPlain:
    case Isa::kPlainAmx:
      return true;
    case Isa::kAvx2:
      return has_avx2;
    case Isa::kAvx512:
      return has_avx512;
    case Isa::kAvx512Vnni:
      return has_avx512 && __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return IsaPresent(Isa::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16") &&
             Bf16DotsAreFmas();
    case Isa::kAvx512Amx:
      return HasTileInstructions() && AskForTiles();
  }
  return false;
}

std::vector<Isa> PresentIsas() {
  std::vector<Isa> present;
  for (const Isa isa : kAll) {
    if (isa != Isa::kPlainAmx && IsaPresent(isa)) present.push_back(isa);
  }
  return present;
}

Isa BestIsa() { return BestIsa(PresentIsas(), __builtin_cpu_is("intel")); }

Isa BestIsa(const std::vector<Isa>& present, bool is_intel) {
  const Isa last = present.back();
  return last == Isa::kAvx512Bf16 && is_intel ? Isa::kAvx512Vnni : last;
}

absl::Status CheckBf16Tiles(Isa isa, ActivationDType activation, AttentionDType attention) {
  if (activation == ActivationDType::kFp8) {
    return absl::InvalidArgumentError(
        "--activation-dtype fp8: CPUs have no products in fp8; leave it out, or add --device cuda");
  }
  if (isa == Isa::kPlainAmx) return absl::OkStatus();
  const bool in_tiles =
      activation == ActivationDType::kBf16Amx || attention == AttentionDType::kBf16Amx;
  return in_tiles ? CheckBf16Tiles(isa, activation, attention, FindBf16Tiles(), CpuName())
                  : absl::OkStatus();
}

absl::Status CheckBf16Tiles(Isa isa, ActivationDType activation, AttentionDType attention,
                            const Bf16TilesFound& found, const std::string& cpu) {
  const bool products = activation == ActivationDType::kBf16Amx;
  if (!products && attention != AttentionDType::kBf16Amx) return absl::OkStatus();
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        products ? "--activation-dtype" : "--attention-dtype", " bf16-amx: ", why...,
        products
            ? "; --activation-dtype bf16 has products in bf16 on every CPU, with bits of its own"
            : "; without the flag attention is in f32, which every CPU has"));
  };
  if (!found.amx) {
    return refuse("this CPU (", cpu, ") has no AMX (amx_tile and amx_int8 in CPUID, tile state in ",
                  "XCR0, beside avx512_bf16 whose products in bf16 are as defined)");
  }
  if (!found.amx_bf16) return refuse("this CPU (", cpu, ") has no amx_bf16");
  if (!found.permitted) {
    return refuse("the kernel refuses this process the state of tile registers ",
                  "(arch_prctl ARCH_REQ_XCOMP_PERM)");
  }
  if (!found.as_defined) {
    return refuse("tdpbf16ps of this CPU (", cpu, ") computes other sums than Intel's manual says");
  }
  if (!HasAmx(isa)) return refuse("--cpu-isa ", IsaName(isa), " has no tiles; leave it out");
  return absl::OkStatus();
}

absl::StatusOr<Isa> ParseIsa(absl::string_view name) {
  const std::vector<Isa> present = PresentIsas();
  if (name == "auto") return BestIsa();
  for (const Isa isa : kAll) {
    if (name != IsaName(isa)) continue;
    if (IsaPresent(isa)) return isa;
    return absl::InvalidArgumentError(
        absl::StrCat("this CPU has no ", name, "; the best it has is ", IsaName(present.back())));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set \"", name,
                   "\"; use auto, avx512amx, avx512bf16, avx512vnni, avx512, avx2, "
                   "plain or plain_amx"));
}

}  // namespace bulkhead
