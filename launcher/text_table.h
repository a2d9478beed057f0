// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

// Columns as wide as their widest cell, the first left-aligned, the others right-aligned. Every row
// has as many cells as the first.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace bulkhead
