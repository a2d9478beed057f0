// Two macros that Abseil 20220623 lacks. Errors are propagated as absl::Status; our code throws
// nothing.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BH_STATUS_CONCAT_(a, b) a##b
#define BH_STATUS_NAME_(a, b) BH_STATUS_CONCAT_(a, b)

#define BH_RETURN_IF_ERROR(expression)       \
  do {                                       \
    absl::Status bh_status_ = (expression);  \
    if (!bh_status_.ok()) return bh_status_; \
  } while (false)

#define BH_ASSIGN_OR_RETURN(lhs, expression) \
  BH_ASSIGN_OR_RETURN_(BH_STATUS_NAME_(bh_statusor_, __LINE__), lhs, expression)
#define BH_ASSIGN_OR_RETURN_(holder, lhs, expression) \
  auto holder = (expression);                         \
  if (!holder.ok()) return holder.status();           \
  lhs = *std::move(holder)
