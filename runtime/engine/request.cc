#include "runtime/engine/request.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

constexpr char kReasonUrl[] = "bulkhead/refusal_reason";

}  // namespace

absl::Status WithRefusalReason(absl::Status status, absl::string_view reason,
                               const RefusalNumbers& numbers) {
  if (status.ok()) return status;
  std::string payload(reason);
  for (const auto& [name, number] : numbers) absl::StrAppend(&payload, "\n", name, "=", number);
  status.SetPayload(kReasonUrl, absl::Cord(payload));
  return status;
}

std::string RefusalReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return "";
  const std::string text(*payload);
  return text.substr(0, text.find('\n'));
}

RefusalNumbers RefusalNumbersOf(const absl::Status& status) {
  RefusalNumbers numbers;
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return numbers;
  const std::vector<std::string> lines = absl::StrSplit(std::string(*payload), '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(lines[i], '=');
    int64_t number = 0;
    if (absl::SimpleAtoi(entry.second, &number)) numbers.emplace(entry.first, number);
  }
  return numbers;
}

}  // namespace bulkhead
