#include "runtime/service/grpc/raw_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "runtime/structured/grammar.h"

namespace bulkhead {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Each takes about 100 bytes as an object, and 2 on the wire. Besides choices and biases a request
// may have a few hundred.
constexpr int kMaxObjects = int{structured::kMaxChoices} + kMaxLogitBiases + 1024;
static_assert(kMaxObjects <= 6144);  // kShortRequestsBytes (host_quotas.h) has room for these
constexpr int kMaxDepth = 8;
constexpr size_t kSmallSliceBytes = 1024;  // copying these is cheaper than owning them

// Reads a message of `type` up to the end of `in`; subtracts every separately allocated object from
// `objects_left`. False when that reaches 0, or on malformed input.
bool CountObjects(google::protobuf::io::CodedInputStream& in, const Descriptor& type, int depth,
                  int& objects_left) {
  while (const uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) return false;  // no message has groups
    const bool is_bytes = wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    const bool is_object = field == nullptr ||
                           field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                           field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_object && --objects_left < 0) return false;
    if (is_bytes && field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      uint32_t length = 0;
      if (depth == kMaxDepth || !in.ReadVarint32(&length)) return false;
      const auto limit = in.PushLimit(static_cast<int>(length));
      if (!CountObjects(in, *field->message_type(), depth + 1, objects_left)) return false;
      if (in.BytesUntilLimit() != 0) return false;
      in.PopLimit(limit);
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  return in.ConsumedEntireMessage() || in.BytesUntilLimit() == 0;
}

void DeleteString(void* string) { delete static_cast<std::string*>(string); }

grpc::Slice SliceOf(std::string bytes) {
  if (bytes.size() < kSmallSliceBytes) return grpc::Slice(bytes);
  auto* owned = new std::string(std::move(bytes));
  return {owned->data(), owned->size(), DeleteString, owned};
}

}  // namespace

absl::Status MalformedRequest(absl::string_view why) {
  return WithReason(absl::InvalidArgumentError(
                        absl::StrCat("the request does not parse: ", why,
                                     "; send text as UTF-8, and anything else as token ids")),
                    reason::kMalformedRequest);
}

grpc::ByteBuffer TakeRequest(const grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken;
  // The buffer belongs to the call, and is not const there.
  taken.Swap(const_cast<grpc::ByteBuffer*>(request));
  return taken;
}

absl::Status ParseRequest(grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  int objects_left = kMaxObjects;
  bool parses = buffer.Length() == 0;
  if (!parses) {
    grpc::ProtoBufferReader reader(&buffer);
    google::protobuf::io::CodedInputStream in(&reader);
    parses = CountObjects(in, *message.GetDescriptor(), 0, objects_left);
  }
  if (objects_left < 0) {
    buffer.Clear();
    return MalformedRequest(
        absl::StrCat("it has more than ", kMaxObjects, " strings and unknown fields"));
  }
  if (parses && buffer.Length() > 0) {
    parses = grpc::GenericDeserialize<grpc::ProtoBufferReader, google::protobuf::Message>(&buffer,
                                                                                          &message)
                 .ok();
  }
  buffer.Clear();
  if (parses) return absl::OkStatus();
  return MalformedRequest(kCannotParse);
}

grpc::ByteBuffer BufferOf(std::string bytes) {
  const grpc::Slice slice = SliceOf(std::move(bytes));
  return {&slice, 1};
}

grpc::ByteBuffer BufferOf(std::vector<std::string> pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces.size());
  for (std::string& piece : pieces) slices.push_back(SliceOf(std::move(piece)));
  return {slices.data(), slices.size()};
}

}  // namespace bulkhead
