#include "base/json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/ordered_json.h"
#include "base/status.h"
#include "base/wrong_file.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kExcerptBytes = 80;

// What is not UTF-8, or is cut, is replaced by U+FFFD: messages are sent to clients.
std::string Excerpt(absl::string_view text) {
  using Handler = nlohmann::json::error_handler_t;
  const nlohmann::json cut = std::string(text.substr(0, kExcerptBytes));
  const auto valid = nlohmann::json::parse(cut.dump(-1, ' ', false, Handler::replace));
  return absl::StrCat(valid.get<std::string>(), text.size() > kExcerptBytes ? "..." : "");
}

// Builds the tree and counts as it goes; nlohmann's own builder has no limits and accepts duplicate
// keys.
template <typename Json>
class BoundedTreeBuilder : public nlohmann::json_sax<Json> {
 public:
  BoundedTreeBuilder(const JsonLimits& limits, bool last_key_counts)
      : limits_(limits), last_key_counts_(last_key_counts) {}

  bool null() override { return Add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return Add(Json(value)) != nullptr; }
  bool number_integer(int64_t value) override { return Add(Json(value)) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Add(Json(value)) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override {
    return Add(Json(value)) != nullptr;
  }
  bool string(std::string& value) override { return Add(Json(std::move(value))) != nullptr; }
  bool binary(typename Json::binary_t& /*value*/) override { return Fail("holds binary data"); }
  bool start_object(size_t /*elements*/) override { return Open(Json::object()); }
  bool end_object() override {
    if (has_twice_) KeepLast(&open_.back()->template get_ref<typename Json::object_t&>());
    return Close();
  }
  bool start_array(size_t /*elements*/) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    key_ = name;
    if (keys_.back().insert(name).second) return true;
    if (last_key_counts_) return has_twice_ = true;
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
  Json& root() { return root_; }

 private:
  static constexpr int kOutOfRange = 406;  // nlohmann's error id for a number outside the range of
                                           // double

  bool Fail(std::string what) {
    if (failure_.empty()) failure_ = std::move(what);
    return false;
  }

  Json* Add(Json value) {
    if (++num_values_ > limits_.max_values) {
      Fail(absl::StrCat("holds more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if constexpr (std::is_same_v<Json, ordered_json>) {
      // Appended directly: operator[] would search all fields.
      auto& fields = parent.template get_ref<typename Json::object_t&>();
      return &fields
                  .std::template vector<typename Json::object_t::value_type>::emplace_back(
                      key_, std::move(value))
                  .second;
    } else {
      return &(parent[key_] = std::move(value));
    }
  }

  bool Open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Fail(absl::StrCat("is nested deeper than ", limits_.max_depth, " levels"));
    }
    // The pointer stays valid: a parent does not grow until its child is complete.
    Json* added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back(added);
    keys_.emplace_back();
    return true;
  }

  // Removes earlier duplicates of a key; only ordered_json can hold any.
  static void KeepLast(typename Json::object_t* fields) {
    if constexpr (std::is_same_v<Json, ordered_json>) {
      absl::flat_hash_set<std::string> seen;
      typename Json::object_t kept;
      for (auto field = fields->rbegin(); field != fields->rend(); ++field) {
        if (!seen.insert(field->first).second) continue;
        kept.std::template vector<typename Json::object_t::value_type>::emplace_back(
            field->first, std::move(field->second));
      }
      fields->clear();
      for (auto field = kept.rbegin(); field != kept.rend(); ++field) {
        fields->std::template vector<typename Json::object_t::value_type>::emplace_back(
            field->first, std::move(field->second));
      }
    }
  }

  bool Close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  const bool last_key_counts_;
  Json root_;
  std::vector<Json*> open_;
  std::vector<absl::flat_hash_set<std::string>> keys_;  // keys seen, by open_
  std::string key_;                                     // the last key read
  int64_t num_values_ = 0;
  bool has_twice_ = false;  // some object so far has a duplicate key
  std::string failure_;
};

template <typename Json>
absl::StatusOr<Json> ParseObject(absl::string_view text, absl::string_view source,
                                 const JsonLimits& limits, bool last_key_counts = false) {
  const std::string wrong = WrongFileText(text, static_cast<int64_t>(text.size()));
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat(source, " ", wrong));
  BoundedTreeBuilder<Json> builder(limits, last_key_counts);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", builder.failure()));
  }
  if (!builder.root().is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": holds ", JsonExcerpt(json(builder.root())), ", not an object"));
  }
  return std::move(builder.root());
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text, absl::string_view source,
                                     const JsonLimits& limits) {
  return ParseObject<json>(text, source, limits);
}

absl::StatusOr<ordered_json> ParseOrderedJsonObject(absl::string_view text,
                                                    absl::string_view source,
                                                    const JsonLimits& limits,
                                                    bool last_key_counts) {
  return ParseObject<ordered_json>(text, source, limits, last_key_counts);
}

std::string JsonExcerpt(const json& value) {
  // Large values are described by type: dumping them would copy them.
  if (value.is_object()) return value.empty() ? "{}" : absl::StrCat("an object of ", value.size());
  if (value.is_array() && (value.size() > 8)) return absl::StrCat("a list of ", value.size());
  return Excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace bulkhead
