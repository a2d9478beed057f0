// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

// Columns as wide as their widest cell, the first one to the left, the others to the right. Every
// row has as many cells as the first.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace bulkhead
