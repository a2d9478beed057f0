// Ends the program if a test's own set-up fails: reporting errors is the test's task.
#pragma once

#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"

namespace bulkhead {

inline void OrDie(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  BH_CHECK(status.ok());
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  OrDie(value.status());
  return *std::move(value);
}

}  // namespace bulkhead
