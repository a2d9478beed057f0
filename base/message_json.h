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

// Sets one field; appends to a list or a map. Returns the path of the first value of the wrong kind
// ("stop[1]"), or "".
std::string SetField(const nlohmann::ordered_json& value,
                     const google::protobuf::FieldDescriptor& field,
                     google::protobuf::Message* message);

// Fills `message` from `object`; unknown keys are ignored. Returns the path of the first field that
// is missing or of the wrong kind ("ranks[1].total_bytes"), or "".
std::string JsonToMessage(const nlohmann::ordered_json& object, google::protobuf::Message* message);

}  // namespace bulkhead
