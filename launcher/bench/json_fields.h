// Fields of JSON that somebody else may have written: absent or of another type, they are the
// default.
#pragma once

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"

namespace bulkhead {

inline double NumberOf(const nlohmann::ordered_json& json, const char* key, double otherwise) {
  const bool has = json.is_object() && json.contains(key) && json[key].is_number();
  return has ? json[key].get<double>() : otherwise;
}
inline int64_t WholeOf(const nlohmann::ordered_json& json, const char* key, int64_t otherwise) {
  const bool has = json.is_object() && json.contains(key) && json[key].is_number_integer();
  return has ? json[key].get<int64_t>() : otherwise;
}
inline std::string TextOf(const nlohmann::ordered_json& json, const char* key) {
  const bool has = json.is_object() && json.contains(key) && json[key].is_string();
  return has ? json[key].get<std::string>() : std::string();
}
inline bool SwitchOf(const nlohmann::ordered_json& json, const char* key, bool otherwise) {
  const bool has = json.is_object() && json.contains(key) && json[key].is_boolean();
  return has ? json[key].get<bool>() : otherwise;
}

}  // namespace bulkhead
