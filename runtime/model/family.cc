#include "runtime/model/family.h"

#include <algorithm>

#include "base/check.h"

namespace bulkhead {

FamilySpecs AllFamilySpecs() {
  static const auto* const specs = [] {
    auto* const list = new std::vector<const FamilySpec*>;
    for (const Family& family : Families()) list->push_back(&family.spec);
    return list;
  }();
  return *specs;
}

const Family& FamilyOf(const ModelConfig& config) {
  const auto found = std::find_if(Families().begin(), Families().end(), [&](const Family& family) {
    return &family.spec == config.family;
  });
  BH_CHECK(found != Families().end());
  return *found;
}

}  // namespace bulkhead
