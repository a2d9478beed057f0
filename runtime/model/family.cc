#include "runtime/model/family.h"

#include <algorithm>

#include "base/check.h"

namespace bulkhead {

Family TextPart(Family text, const char* architecture, const char* model_type, const char* prefix,
                const char* model_prefix, const char* not_served) {
  FamilySpec& spec = text.spec;
  spec.text_model_types = spec.model_type;
  spec.architecture = architecture;
  spec.model_type = model_type;
  spec.prefix = prefix;
  spec.model_prefix = model_prefix;
  spec.not_served = not_served;
  return text;
}

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
