#include "base/message_json.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

// A list of these is an object: the first field is the key.
bool IsEntry(const Descriptor& type) {
  return type.field_count() == 2 && !type.field(0)->is_repeated() &&
         !type.field(1)->is_repeated() &&
         type.field(0)->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
         (type.options().map_entry() ||
          (type.field(1)->cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
           type.field(1)->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE));
}

// The value of a singular field, or of element `i` of a repeated one.
ordered_json ValueOf(const Message& message, const FieldDescriptor& field, int i) {
  const Reflection& r = *message.GetReflection();
  const FieldDescriptor* f = &field;
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return list ? r.GetRepeatedBool(message, f, i) : r.GetBool(message, f);
    case FieldDescriptor::CPPTYPE_INT32:
      return list ? r.GetRepeatedInt32(message, f, i) : r.GetInt32(message, f);
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? r.GetRepeatedInt64(message, f, i) : r.GetInt64(message, f);
    case FieldDescriptor::CPPTYPE_UINT32:
      return list ? r.GetRepeatedUInt32(message, f, i) : r.GetUInt32(message, f);
    case FieldDescriptor::CPPTYPE_UINT64:
      return list ? r.GetRepeatedUInt64(message, f, i) : r.GetUInt64(message, f);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return list ? r.GetRepeatedFloat(message, f, i) : r.GetFloat(message, f);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r.GetRepeatedDouble(message, f, i) : r.GetDouble(message, f);
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? r.GetRepeatedString(message, f, i) : r.GetString(message, f);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (list ? r.GetRepeatedEnum(message, f, i) : r.GetEnum(message, f))->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(list ? r.GetRepeatedMessage(message, f, i) : r.GetMessage(message, f));
  }
  return nullptr;
}

template <typename T>
bool InRange(const ordered_json& value) {
  return value.is_number_unsigned()
             ? value.get<uint64_t>() <= std::numeric_limits<T>::max()
             : value.is_number_integer() && value.get<int64_t>() >= std::numeric_limits<T>::min();
}

// Whether `value` is what the field holds.
bool Fits(const FieldDescriptor& field, const ordered_json& value) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return value.is_boolean();
    case FieldDescriptor::CPPTYPE_INT32:
      return InRange<int32_t>(value);
    case FieldDescriptor::CPPTYPE_INT64:
      return InRange<int64_t>(value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return value.is_number_unsigned() && InRange<uint32_t>(value);
    case FieldDescriptor::CPPTYPE_UINT64:
      return value.is_number_unsigned();
    case FieldDescriptor::CPPTYPE_FLOAT:
      return value.is_number() &&
             std::fabs(value.get<double>()) <= std::numeric_limits<float>::max();
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return value.is_number();
    case FieldDescriptor::CPPTYPE_STRING:
      return value.is_string();
    case FieldDescriptor::CPPTYPE_ENUM:
      return value.is_string() &&
             field.enum_type()->FindValueByName(value.get<std::string>()) != nullptr;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return value.is_object();
  }
  return false;
}

// Sets a singular field, or appends to a repeated one. Returns the path of a wrong value, or "".
std::string Put(const ordered_json& value, const FieldDescriptor& field, Message* message) {
  const Reflection& r = *message->GetReflection();
  const FieldDescriptor* f = &field;
  const bool list = field.is_repeated();
  const auto put = [&](auto add, auto set, auto v) {
    list ? (r.*add)(message, f, v) : (r.*set)(message, f, v);
    return std::string();
  };
  if (!Fits(field, value)) return field.name();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return put(&Reflection::AddBool, &Reflection::SetBool, value.get<bool>());
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::AddInt32, &Reflection::SetInt32, value.get<int32_t>());
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&Reflection::AddInt64, &Reflection::SetInt64, value.get<int64_t>());
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(&Reflection::AddUInt32, &Reflection::SetUInt32, value.get<uint32_t>());
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::AddUInt64, &Reflection::SetUInt64, value.get<uint64_t>());
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(&Reflection::AddFloat, &Reflection::SetFloat, value.get<float>());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return put(&Reflection::AddDouble, &Reflection::SetDouble, value.get<double>());
    case FieldDescriptor::CPPTYPE_STRING:
      return put(&Reflection::AddString, &Reflection::SetString, value.get<std::string>());
    case FieldDescriptor::CPPTYPE_ENUM:
      return put(&Reflection::AddEnum, &Reflection::SetEnum,
                 field.enum_type()->FindValueByName(value.get<std::string>()));
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const std::string wrong =
          JsonToMessage(value, list ? r.AddMessage(message, f) : r.MutableMessage(message, f));
      return wrong.empty() ? "" : absl::StrCat(field.name(), ".", wrong);
    }
  }
  return field.name();
}

std::string PutList(const ordered_json& value, const FieldDescriptor& field, Message* message) {
  const bool entries = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                       IsEntry(*field.message_type()) && value.is_object();
  if (!entries && !value.is_array()) return field.name();
  int i = 0;
  for (const auto& [key, element] : value.items()) {
    std::string wrong;
    if (entries) {
      const Descriptor& type = *field.message_type();
      wrong = Put({{type.field(0)->name(), key}, {type.field(1)->name(), element}}, field, message);
    } else {
      wrong = Put(element, field, message);
    }
    const size_t rest = field.name().size();
    if (!wrong.empty()) return absl::StrCat(field.name(), "[", i, "]", wrong.substr(rest));
    ++i;
  }
  return "";
}

}  // namespace

ordered_json MessageToJson(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  ordered_json object = ordered_json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.is_repeated()) {
      if (field.has_presence() && !reflection.HasField(message, &field)) continue;
      object[field.name()] = ValueOf(message, field, 0);
      continue;
    }
    const int size = reflection.FieldSize(message, &field);
    const bool entries =
        field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && IsEntry(*field.message_type());
    ordered_json& list = object[field.name()] =
        entries ? ordered_json::object() : ordered_json::array();
    for (int k = 0; k < size; ++k) {
      if (!entries) {
        list.push_back(ValueOf(message, field, k));
        continue;
      }
      const Message& entry = reflection.GetRepeatedMessage(message, &field, k);
      const Descriptor& pair = *field.message_type();
      list[ValueOf(entry, *pair.field(0), 0).get<std::string>()] =
          ValueOf(entry, *pair.field(1), 0);
    }
  }
  return object;
}

std::string MessageToJsonText(const Message& message) {
  return MessageToJson(message).dump(2) + "\n";
}

std::string SetField(const ordered_json& value, const FieldDescriptor& field, Message* message) {
  return field.is_repeated() ? PutList(value, field, message) : Put(value, field, message);
}

std::string JsonToMessage(const ordered_json& object, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto found = object.find(field.name());
    if (found == object.end()) {
      if (field.is_repeated() || field.has_presence()) continue;
      return field.name();
    }
    const std::string wrong = SetField(*found, field, message);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace bulkhead
