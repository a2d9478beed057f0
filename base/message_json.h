// Protobuf messages as JSON by reflection, with the names of the .proto file and in its order.
// Unlike protobuf's own JSON, 64-bit integers are numbers and a field without presence is written
// when it is 0, and a list when it is empty; an unset optional field or message is left out. Maps
// are objects, and so are lists of messages of one string and one number, such as {term, bytes}.
#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json_fwd.hpp"

namespace bulkhead {

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);
// Indented by two, with a newline at the end.
std::string MessageToJsonText(const google::protobuf::Message& message);

// Sets one field; a list and a map are added to. Returns the path of what is not of the field's
// kind ("stop[1]"), empty when all is.
std::string SetField(const nlohmann::ordered_json& value,
                     const google::protobuf::FieldDescriptor& field,
                     google::protobuf::Message* message);

// Fills `message` from `object`; keys that it does not have are passed over. Returns the path of
// the first field that is missing or of another kind ("ranks[1].total_bytes"), empty when there is
// none.
std::string JsonToMessage(const nlohmann::ordered_json& object, google::protobuf::Message* message);

}  // namespace bulkhead
