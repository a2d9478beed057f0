#include "launcher/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace bulkhead {

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? row[i] : space, i == 0 ? space : row[i],
                      i + 1 < row.size() ? "  " : "\n");
    }
  }
  return text;
}

}  // namespace bulkhead
