#include "runtime/structured/code_points.h"

#include <algorithm>

namespace bulkhead::structured {
namespace {

constexpr char32_t kLast = 0x10ffff;
constexpr CodePointRange kSurrogates = {0xd800, 0xdfff};

}  // namespace

CodePoints::CodePoints(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (CodePointRange r : ranges) {
    r.last = std::min(r.last, kLast);
    if (r.first > r.last) continue;
    if (r.first < kSurrogates.first) {
      parts.push_back({r.first, std::min(r.last, char32_t{kSurrogates.first - 1})});
    }
    if (r.last > kSurrogates.last) {
      parts.push_back({std::max(r.first, char32_t{kSurrogates.last + 1}), r.last});
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (const CodePointRange& r : parts) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    } else {
      ranges_.push_back(r);
    }
  }
}

CodePoints CodePoints::All() { return CodePoints({{0, kLast}}); }

bool CodePoints::Contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CodePointRange& r) { return r.first <= c && c <= r.last; });
}

CodePoints CodePoints::Union(const CodePoints& other) const {
  std::vector<CodePointRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(std::move(all));
}

CodePoints CodePoints::Complement() const {
  std::vector<CodePointRange> gaps;
  char32_t next = 0;
  for (const CodePointRange& r : ranges_) {
    if (r.first > next) gaps.push_back({next, static_cast<char32_t>(r.first - 1)});
    next = r.last + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CodePoints(std::move(gaps));
}

CodePoints CodePoints::Intersect(const CodePoints& other) const {
  return Complement().Union(other.Complement()).Complement();
}

CodePoints CodePoints::Minus(const CodePoints& other) const {
  return Intersect(other.Complement());
}

}  // namespace bulkhead::structured
