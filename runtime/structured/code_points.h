// Sets of Unicode code points (without surrogates).
#pragma once

#include <cstdint>
#include <vector>

namespace bulkhead::structured {

struct CodePointRange {
  char32_t first, last;  // inclusive
};

// Sorted ranges with gaps between them.
class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(std::vector<CodePointRange> ranges);  // NOLINT: in any order, overlapping
  static CodePoints All();

  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t c) const;
  CodePoints Union(const CodePoints& other) const;
  CodePoints Complement() const;
  CodePoints Minus(const CodePoints& other) const;
  CodePoints Intersect(const CodePoints& other) const;

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace bulkhead::structured
