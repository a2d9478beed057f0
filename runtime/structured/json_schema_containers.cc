// Objects and arrays of a JSON schema.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/structured/json_schema.h"
#include "runtime/structured/schema_keywords.h"

namespace bulkhead::structured {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNameWork = 50;  // per byte of a name that other keys must differ from

struct Property {
  std::string name;
  int32_t rule;
  bool required;
};

// The members of an object from `{` to before `next`. `other`: the rule for values of other
// members, or -1.
int32_t EmitMembers(const std::vector<Property>& properties, int32_t other, JsonGrammar& json,
                    int32_t next) {
  GrammarBuilder& builder = json.builder();
  const int32_t end = builder.Literal("}", next);
  // Before the next member, when there was none yet, and when there was one.
  int32_t none = end, some = end;
  if (other >= 0) {
    std::vector<std::string> names;
    for (const Property& property : properties) {
      names.push_back(property.name);
      builder.Count(kNameWork * property.name.size());
    }
    const auto member = [&](int32_t after) {
      return json.OtherKey(names, json.Colon(builder.Call(other, after)));
    };
    some = builder.Star([&](int32_t after) { return json.Comma(member(after)); }, end);
    none = builder.Split({member(some), end});
  }
  for (size_t i = properties.size(); i > 0; --i) {
    const Property& property = properties[i - 1];
    const std::string key =
        Json(property.name).dump(-1, ' ', false, Json::error_handler_t::replace);
    const int32_t member = builder.Literal(key, json.Colon(builder.Call(property.rule, some)));
    const int32_t another = json.Comma(member);
    none = property.required ? member : builder.Split({member, none});
    some = property.required ? another : builder.Split({another, some});
  }
  return builder.Literal("{", none);
}

}  // namespace

absl::StatusOr<int32_t> JsonSchemaCompiler::ObjectRule(const Place& place) {
  const Json& schema = place.schema;
  const auto names = schema.find("required");
  absl::flat_hash_set<std::string> required;
  if (names != schema.end()) {
    for (const Json& name : *names) {
      if (names->is_array() && name.is_string()) {
        required.insert(name.get<std::string>());
      } else {
        return InvalidSchema(place.path, "\"required\" must be a list of strings");
      }
    }
  }
  const auto fields = schema.find("properties");
  const bool open = fields == schema.end();
  int32_t other = -1;
  if (schema.contains("additionalProperties")) {
    const Json& additional = schema["additionalProperties"];
    if (additional != false) {
      BH_ASSIGN_OR_RETURN(other, FieldRule(place, "additionalProperties", -1));
    }
  } else if (open) {
    if (required.empty()) return json_.Object();
    other = json_.Any();
  }
  std::vector<Property> properties;
  if (fields != schema.end()) {
    if (!fields->is_object()) return InvalidSchema(place.path, "\"properties\" must be an object");
    for (const auto& [name, field] : fields->items()) {
      BH_ASSIGN_OR_RETURN(
          const int32_t rule,
          SchemaRule({field, absl::StrCat(place.path, "/properties/", name), place.depth + 1}));
      properties.push_back({name, rule, required.erase(name) > 0});
    }
  }
  if (names != schema.end()) {  // names that are not in properties, in their order
    for (const Json& name : *names) {
      const std::string& text = name.get_ref<const std::string&>();
      if (required.erase(text) == 0) continue;
      if (schema.contains("additionalProperties") && other < 0) {
        return InvalidSchema(place.path,
                             absl::StrCat("\"", text, "\" is required, and not allowed"));
      }
      properties.push_back({text, other >= 0 ? other : json_.Any(), true});
    }
  }
  return builder_.AddRule(
      true, [&](int32_t next) { return EmitMembers(properties, other, json_, next); });
}

absl::StatusOr<int32_t> JsonSchemaCompiler::ArrayRule(const Place& place) {
  const Json& schema = place.schema;
  BH_ASSIGN_OR_RETURN(const int min, CountOf(schema, place.path, "minItems", 0));
  BH_ASSIGN_OR_RETURN(const int max, CountOf(schema, place.path, "maxItems", -1));
  if (max >= 0 && min > max) return InvalidSchema(place.path, "minItems > maxItems");
  if (schema.contains("items") && schema["items"].is_array()) {
    return UnsupportedSchema(place.path, "\"items\" as a list, in place of \"prefixItems\",");
  }
  std::vector<int32_t> prefix;
  if (schema.contains("prefixItems")) {
    const Json& list = schema["prefixItems"];
    if (!list.is_array()) return InvalidSchema(place.path, "\"prefixItems\" must be a list");
    for (size_t i = 0; i < list.size(); ++i) {
      BH_ASSIGN_OR_RETURN(
          const int32_t rule,
          SchemaRule({list[i], absl::StrCat(place.path, "/prefixItems/", i), place.depth + 1}));
      prefix.push_back(rule);
    }
  }
  const int num_prefix = static_cast<int>(prefix.size());
  const bool closed = num_prefix > 0 && min <= num_prefix && !schema.contains("items");
  BH_ASSIGN_OR_RETURN(const int32_t item, FieldRule(place, "items", closed ? -1 : json_.Any()));
  if (num_prefix == 0) {
    return builder_.AddRule(true,
                            [&](int32_t next) { return json_.ArrayOf(item, min, max, next); });
  }
  const auto body = [&](int32_t next) {
    const int32_t end = builder_.Literal("]", next);
    int32_t state = end;  // after all of the prefix
    if (item >= 0 && (max < 0 || max > num_prefix)) {
      const auto another = [&](int32_t after) { return json_.Comma(builder_.Call(item, after)); };
      state = builder_.Repeat(builder_.AddRule(false, another), std::max(0, min - num_prefix),
                              max < 0 ? -1 : max - num_prefix, end);
    }
    for (int i = num_prefix - 1; i >= 0; --i) {
      if (max >= 0 && i >= max) {
        state = end;
        continue;
      }
      const int32_t value = builder_.Call(prefix[i], state);
      const int32_t start = i == 0 ? value : json_.Comma(value);
      state = min <= i ? builder_.Split({start, end}) : start;
    }
    return builder_.Literal("[", state);
  };
  return builder_.AddRule(true, body);
}

}  // namespace bulkhead::structured
