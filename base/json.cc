#include "base/json.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/wrong_file.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr size_t kExcerptBytes = 80;

std::string Excerpt(absl::string_view text) {
  if (text.size() <= kExcerptBytes) return std::string(text);
  return absl::StrCat(text.substr(0, kExcerptBytes), "...");
}

// Builds the tree and counts as it goes; nlohmann's own builder has no limits and accepts duplicate
// keys.
class BoundedTreeBuilder : public nlohmann::json_sax<json> {
 public:
  explicit BoundedTreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return Add(json(value)) != nullptr; }
  bool number_integer(int64_t value) override { return Add(json(value)) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Add(json(value)) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override {
    return Add(json(value)) != nullptr;
  }
  bool string(std::string& value) override { return Add(json(std::move(value))) != nullptr; }
  bool binary(json::binary_t& /*value*/) override { return Fail("holds binary data"); }
  bool start_object(size_t /*elements*/) override { return Open(json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t /*elements*/) override { return Open(json::array()); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    key_ = name;
    if (!open_.back()->contains(name)) return true;
    return Fail(absl::StrCat("has the key '", Excerpt(name), "' twice in one object"));
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    const char* what = error.id == kOutOfRange ? "is not a finite number" : "is not valid JSON";
    return Fail(
        absl::StrCat("'", Excerpt(last_token), "' ", what, " (byte ", position,
                     key_.empty() ? "" : absl::StrCat(", at or after '", Excerpt(key_), "'"), ")"));
  }

  const std::string& failure() const { return failure_; }
  json& root() { return root_; }

 private:
  static constexpr int kOutOfRange = 406;  // nlohmann's error id for a number outside the range of
                                           // double

  bool Fail(std::string what) {
    if (failure_.empty()) failure_ = std::move(what);
    return false;
  }

  json* Add(json value) {
    if (++num_values_ > limits_.max_values) {
      Fail(absl::StrCat("holds more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool Open(json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Fail(absl::StrCat("is nested deeper than ", limits_.max_depth, " levels"));
    }
    // The pointer stays valid: a parent does not grow until its child is complete.
    json* added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back(added);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  json root_;
  std::vector<json*> open_;
  std::string key_;  // the last key read
  int64_t num_values_ = 0;
  std::string failure_;
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text, absl::string_view source,
                                     const JsonLimits& limits) {
  const std::string wrong = WrongFileText(text, static_cast<int64_t>(text.size()));
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat(source, " ", wrong));
  BoundedTreeBuilder builder(limits);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", builder.failure()));
  }
  if (!builder.root().is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": holds ", JsonExcerpt(builder.root()), ", not an object"));
  }
  return std::move(builder.root());
}

std::string JsonExcerpt(const json& value) {
  // Large values are described by type: dumping them would copy them.
  if (value.is_object()) return value.empty() ? "{}" : absl::StrCat("an object of ", value.size());
  if (value.is_array() && (value.size() > 8)) return absl::StrCat("a list of ", value.size());
  return Excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace bulkhead
