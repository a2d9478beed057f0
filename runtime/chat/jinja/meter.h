// Meter: how much of its limits one render has used. Used by one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/template.h"

namespace bulkhead::jinja {

class Meter {
 public:
  // `context_bytes` extends the limit on values.
  Meter(const Limits& limits, int64_t context_bytes)
      : limits_(limits), max_bytes_(limits.max_value_bytes + 16 * context_bytes) {}

  const Limits& limits() const { return limits_; }
  // Counts a node evaluated, or `count` times 256 bytes handled.
  absl::Status Step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) return Exceeded("steps", "max_steps", limits_.max_steps);
    if (bytes_ > max_bytes_) return Exceeded("bytes of values", kBytesLimit, max_bytes_);
    return absl::OkStatus();
  }
  absl::Status HandleBytes(int64_t bytes) { return Step(bytes / 256); }
  // The same where an error cannot be returned: the next step fails instead.
  void CountBytes(int64_t bytes) { steps_ += bytes / 256; }
  // Call before a value of that size is made, so that one that cannot fit is never allocated.
  absl::Status Reserve(int64_t bytes) {
    if (!Fits(bytes)) return Exceeded("bytes of values", kBytesLimit, max_bytes_);
    return HandleBytes(bytes);
  }
  bool Fits(int64_t bytes) const { return bytes <= max_bytes_ - bytes_; }
  // Called by a value that is made. The next step fails if that is too much.
  void Take(int64_t bytes) {
    bytes_ += bytes;
    CountBytes(bytes);
  }
  void GiveBack(int64_t bytes) { bytes_ -= bytes; }
  absl::Status Enter() {
    if (depth_ >= limits_.max_depth) {
      return Exceeded("levels of calls, blocks and expressions", "max_depth", limits_.max_depth);
    }
    ++depth_;
    return absl::OkStatus();
  }
  void Leave() { --depth_; }
  absl::Status Exceeded(absl::string_view what, absl::string_view limit, int64_t value) const {
    return absl::ResourceExhaustedError(absl::StrCat("the template takes more than ", value, " ",
                                                     what, " (the limit ", limit, ")"));
  }

 private:
  static constexpr absl::string_view kBytesLimit =
      "max_value_bytes with 16 for each byte of the context";

  Limits limits_;
  int64_t max_bytes_;
  int64_t bytes_ = 0;
  int64_t steps_ = 0;
  int depth_ = 0;
};

}  // namespace bulkhead::jinja
