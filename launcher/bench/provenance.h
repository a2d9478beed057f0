// Where and when something was measured.
#pragma once

#include <string>

namespace bulkhead {

std::string CpuName();   // as the kernel calls it, else "unknown"
std::string DateText();  // now, in UTC: "2026-11-21T09:30:00Z"

}  // namespace bulkhead
