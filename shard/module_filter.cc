#define PCRE2_CODE_UNIT_WIDTH 8
#include "shard/module_filter.h"

#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace bulkhead {
namespace {

// Module names are short, so matching patterns against them takes few steps.
constexpr uint32_t kMatchLimit = 20'000;
constexpr uint32_t kHeapLimitKib = 1024;
constexpr size_t kMaxPatternBytes = 4096;

}  // namespace

class ModuleList::Pattern {
 public:
  explicit Pattern(pcre2_code* code) : code_(code), context_(pcre2_match_context_create(nullptr)) {
    if (context_ == nullptr) return;
    pcre2_set_match_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
  }
  ~Pattern() {
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  bool Matches(absl::string_view text) const {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    if (data == nullptr || context_ == nullptr) return false;
    const int rc = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                               data, context_);
    pcre2_match_data_free(data);
    return rc >= 0;
  }

 private:
  pcre2_code* code_;
  pcre2_match_context* context_;
};

ModuleList::ModuleList() = default;
ModuleList::~ModuleList() = default;
ModuleList::ModuleList(ModuleList&&) noexcept = default;

bool ModuleList::AddPattern(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) return false;
  int error;
  PCRE2_SIZE where;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_ANCHORED, &error, &where, nullptr);
  if (code == nullptr) return false;
  patterns_.push_back(std::make_unique<Pattern>(code));
  return true;
}

bool ModuleList::Contains(absl::string_view module, bool is_linear) const {
  return has_all_ || (has_linears_ && is_linear) || names_.contains(module) ||
         std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const auto& pattern) { return pattern->Matches(module); });
}

}  // namespace bulkhead
