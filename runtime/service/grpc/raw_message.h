// Unparsed requests from gRPC, and serialised answers for it.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace bulkhead {

inline constexpr char kCannotParse[] =
    "a string in it is not valid UTF-8, or the message is cut or of another type";

// INVALID_ARGUMENT (MALFORMED_REQUEST): "the request does not parse: `why`; ...".
absl::Status MalformedRequest(absl::string_view why);

// gRPC keeps a request's bytes until the call ends; once taken out, they are freed after parsing.
grpc::ByteBuffer TakeRequest(const grpc::ByteBuffer* request);

// Fills `message` and clears `buffer`. INVALID_ARGUMENT (MALFORMED_REQUEST). Uses at most
// kHeldPerTextByte (host_quotas.h) per byte of the buffer: messages with more than 6144 strings
// and unknown fields are refused.
absl::Status ParseRequest(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

// Without a copy.
grpc::ByteBuffer BufferOf(std::string bytes);
grpc::ByteBuffer BufferOf(std::vector<std::string> pieces);

}  // namespace bulkhead
