// JsonPart: a node of tokenizer.json with its path, so that errors name it (the reader adds the
// file name). Every accessor checks the type; nothing throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

// Upper bound on ids and vocabulary sizes.
constexpr int32_t kMaxTokenId = 1 << 22;

// Whether JSON text is safe to parse into a tree: refused if nested too deeply (trees are processed
// recursively) or with too many values for memory. Malformed JSON may pass.
absl::Status CheckJsonBounds(absl::string_view text);

class JsonPart {
 public:
  JsonPart(const nlohmann::json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *json_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return json_->is_null(); }
  bool is_object() const { return json_->is_object(); }

  // The field, if present and not null.
  std::optional<JsonPart> Find(absl::string_view key) const;
  absl::StatusOr<JsonPart> Get(absl::string_view key) const;
  absl::StatusOr<std::vector<JsonPart>> Elements() const;

  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key, bool absent) const;
  // In [0, limit].
  absl::StatusOr<int64_t> GetCount(absl::string_view key, int64_t limit) const;
  absl::StatusOr<std::string> AsString() const;
  absl::StatusOr<int64_t> AsCount(int64_t limit) const;
  // One character.
  absl::StatusOr<std::string> GetChar(absl::string_view key) const;

  absl::Status Invalid(absl::string_view why) const;
  absl::Status Unsupported(absl::string_view what) const;
  // The same status with the path prepended to its message.
  absl::Status Wrap(const absl::Status& status) const;

 private:
  const nlohmann::json* json_;
  std::string path_;
};

// Maximum nesting depth of {"type": ...} parts in Sequences.
constexpr int kMaxSequenceDepth = 16;

}  // namespace bulkhead
