// Requests as gRPC hands them over, unparsed, and answers as it takes them, already packed.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "runtime/service/packed_message.h"

namespace bulkhead {

// gRPC keeps the bytes of a request until its call is over; taken out, they go when they are
// parsed.
grpc::ByteBuffer TakeRequest(const grpc::ByteBuffer* request);

// Fills `message` and clears `buffer`. INVALID_ARGUMENT (MALFORMED_REQUEST). Takes at most
// kParseBytesPerByte (host_quotas.h) for each byte of the buffer: a message of more than 1024
// strings and unknown fields is not parsed.
absl::Status ParseRequest(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

// Without a copy.
grpc::ByteBuffer BufferOf(std::string bytes);
grpc::ByteBuffer BufferOf(std::vector<std::string> pieces);

}  // namespace bulkhead
