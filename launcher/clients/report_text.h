// A capacity report in words.
#pragma once

#include <string>

#include "bulkhead/v1/report.pb.h"

namespace bulkhead {

// What a person should know of it. Where it says that its server serves, that process is looked
// for.
std::string ExplainReport(const v1::Report& report);

}  // namespace bulkhead
