// ModuleList: names and patterns of modules, as in quantization_config.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace bulkhead {

// Const methods may be called from several threads at once.
class ModuleList {
 public:
  ModuleList();
  ~ModuleList();
  ModuleList(ModuleList&&) noexcept;

  void AddAll() { has_all_ = has_linears_ = true; }
  // Adds all Linear modules: those with a tensor of their own, not one shared by experts.
  void AddLinears() { has_linears_ = true; }
  void AddName(std::string name) { names_.insert(std::move(name)); }
  // A regular expression, anchored at a name's begin, as in Python's re.match. False if it is
  // malformed.
  bool AddPattern(const std::string& pattern);

  // A pattern that takes too long does not match.
  bool Contains(absl::string_view module, bool is_linear = true) const;

 private:
  class Pattern;

  bool has_all_ = false;
  bool has_linears_ = false;
  std::set<std::string, std::less<>> names_;
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

// Which modules of a checkpoint are quantised: the targets that are not ignored.
struct ModuleFilter {
  ModuleList targets;
  ModuleList ignored;

  bool Selects(absl::string_view module, bool is_linear = true) const {
    return targets.Contains(module, is_linear) && !ignored.Contains(module, is_linear);
  }
};

}  // namespace bulkhead
