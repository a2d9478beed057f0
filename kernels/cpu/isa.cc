#include "kernels/cpu/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

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
      return IsaPresent(Isa::kAvx512Bf16) && __builtin_cpu_supports("amx-tile") &&
             __builtin_cpu_supports("amx-int8") && AskForTiles();
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

absl::StatusOr<Isa> ParseIsa(absl::string_view name) {
  const std::vector<Isa> present = PresentIsas();
  if (name == "auto") return present.back();
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
