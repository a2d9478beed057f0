// JsonSchemaCompiler: a JSON schema as rules of a grammar. Supported: true and false; type (also a
// list), enum, const; properties, required, additionalProperties; items, prefixItems, minItems,
// maxItems; minLength, maxLength, pattern (regex.h), format (of FormatPattern; not beside pattern);
// minimum, maximum, exclusiveMinimum, exclusiveMaximum; anyOf, oneOf (as anyOf: that only one holds
// is not checked), allOf with one schema, each beside type if it has no other types; $ref within
// the schema, also recursive. Annotations (title, description, default, examples ...) and values
// that forbid nothing have no effect. Anything else is UNIMPLEMENTED by name, with its path.
//
// Objects are written in the order of properties. Narrower than the schema, as in XGrammar: without
// additionalProperties, an object with properties has no others, and an array with prefixItems but
// no items ends after them; a schema without type has the one its keywords imply.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/structured/json_grammar.h"

namespace bulkhead::structured {

inline constexpr int kMaxSchemaDepth = 100;  // nested schemas, also through $ref

class JsonSchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;

  // `root` must outlive it.
  JsonSchemaCompiler(const Json& root, GrammarBuilder& builder)
      : root_(root), builder_(builder), json_(builder) {}

  // The rule of the whole schema.
  absl::StatusOr<int32_t> Compile();

 private:
  // A schema and its path: "#/properties/a".
  struct Place {
    const Json& schema;
    std::string path;
    int depth;
  };

  absl::StatusOr<int32_t> SchemaRule(const Place& place);
  absl::StatusOr<int32_t> KeywordsRule(const Place& place);
  absl::StatusOr<int32_t> RefRule(const Place& place);
  absl::StatusOr<bool> LacksType(const Place& place, const Json& alternative,
                                 absl::string_view keyword) const;
  absl::StatusOr<int32_t> AlternativesRule(const Place& place, absl::string_view keyword);
  absl::StatusOr<int32_t> LiteralsRule(const Place& place);
  absl::StatusOr<int32_t> TypeRule(const Place& place, absl::string_view type);
  absl::StatusOr<int32_t> ObjectRule(const Place& place);
  absl::StatusOr<int32_t> ArrayRule(const Place& place);
  absl::StatusOr<int32_t> StringRule(const Place& place);
  absl::StatusOr<int32_t> NumberRule(const Place& place, bool integer);
  absl::StatusOr<const Json*> Resolve(const Place& place, absl::string_view ref) const;
  // The rule of the schema in the field `keyword`; `absent` if there is none.
  absl::StatusOr<int32_t> FieldRule(const Place& place, const char* keyword, int32_t absent);

  const Json& root_;
  GrammarBuilder& builder_;
  JsonGrammar json_;
  absl::flat_hash_map<const Json*, int32_t> refs_;  // by target
};

}  // namespace bulkhead::structured
