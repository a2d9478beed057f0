// BodyParts: the body of an answer, produced as it is sent: JSON takes many times the bytes of its
// packed messages, and never exists as a whole. Used by one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// The inside of a JSON string: quotes, backslashes and control characters escaped, and U+0085,
// U+2028 and U+2029, which end a line for some clients.
void AppendEscaped(absl::string_view text, std::string* out);
// JSON with those three escaped.
std::string WithLineEndsEscaped(absl::string_view json);
// With its quotes.
std::string JsonString(absl::string_view text);

class BodyParts {
 public:
  // Size of the slices of an answer: a part stops a little after that many bytes.
  static constexpr size_t kSliceBytes = size_t{8} << 10;

  // Appends to `out` and returns whether that was all. Called again if not, later.
  using Part = std::function<bool(std::string* out)>;

  BodyParts() = default;
  explicit BodyParts(std::string text) { Add(std::move(text)); }

  void Add(std::string text);
  // The escaped inside of a JSON string; `owner` holds the text.
  void AddEscaped(absl::string_view text, std::shared_ptr<const void> owner);
  void AddPart(Part part) { parts_.push_back(std::move(part)); }
  void Add(BodyParts more);

  // Appends up to about kSliceBytes; true once nothing is left.
  bool Produce(std::string* out);

 private:
  std::deque<Part> parts_;
};

}  // namespace bulkhead
