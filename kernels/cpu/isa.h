// Which variant of the CPU kernels runs. All variants give the same bits and differ only in speed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// "plain", "plain_amx", "avx2", "avx512", "avx512vnni", "avx512bf16", "avx512amx".
const char* IsaName(Isa isa);

// Whether this CPU has the instructions and the system saves the registers; for avx512bf16 also
// whether its vdpbf16ps gives the same bits as the other variants. For avx512amx this asks the
// system for the tile registers, once for all threads of the process.
bool IsaPresent(Isa isa);

// All present sets, the slowest (plain) first; without plain_amx, an emulation for tests.
std::vector<Isa> PresentIsas();

// The fastest present set: the last one, except kAvx512Bf16 on Intel's CPUs (which may hide their
// AMX), whose vdpbf16ps has half of fma's rate.
Isa BestIsa();
// The same for given sets and CPU.
Isa BestIsa(const std::vector<Isa>& present, bool is_intel);

// What bf16 tile products need, as found on this machine.
struct Bf16TilesFound {
  bool amx = false;         // CPUID and XCR0: amx_tile and amx_int8, beside avx512bf16
  bool amx_bf16 = false;    // CPUID
  bool permitted = false;   // the kernel saves the process's tiles
  bool as_defined = false;  // tdpbf16ps gives the bits of ActivationDType::kBf16Amx
};

// INVALID_ARGUMENT if these need bf16 tiles and `isa` has none, or products in fp8, which no CPU
// has; names what is missing.
absl::Status CheckBf16Tiles(Isa isa, ActivationDType activation,
                            AttentionDType attention = AttentionDType::kF32);
// The same for what was found on a CPU of this name.
absl::Status CheckBf16Tiles(Isa isa, ActivationDType activation, AttentionDType attention,
                            const Bf16TilesFound& found, const std::string& cpu);

// "auto" is BestIsa. INVALID_ARGUMENT for an unknown name or one that is absent here.
absl::StatusOr<Isa> ParseIsa(absl::string_view name);

}  // namespace bulkhead
