// A served family by its model_type, for configs made by a test.
#pragma once

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "runtime/model/family.h"

namespace bulkhead {

inline const FamilySpec* FamilyNamed(absl::string_view model_type) {
  for (const FamilySpec* family : AllFamilySpecs()) {
    if (family->model_type == model_type) return family;
  }
  BH_CHECK(false);
}

}  // namespace bulkhead
