// HostQuotas: what rank 0's host gives its clients. Planned before anything is taken
// (launcher/planning/host_budget.h) and kept by the service: each quota is enforced where it is
// named, and their sum is the host budget of the plan.
#pragma once

#include <cstdint>

namespace bulkhead {

// Of a message beyond HostQuotas::message_bytes so much is still read, to refuse it by name.
inline constexpr int64_t kRefusedMessageBytes = int64_t{1} << 20;
// Of a generation's text so much is counted for each token it may have; what is longer takes from
// the part of the budget that is kept for that.
inline constexpr int64_t kTextBytesPerToken = 16;
// What a stream has of the budget from its admission on, at the most.
inline constexpr int64_t kStreamShareBytes = int64_t{16} << 10;

// A request that was admitted to the queue, beside its tokens and its call: its books in service,
// coordinator and scheduler, with 16 stop strings of 256 bytes and 256 stop ids.
inline constexpr int64_t kRequestBytes = int64_t{12} << 10;
// What a running one has beside that, and a waiting one that was preempted or resumed: the tables
// of its stop strings, 4 bytes for each of theirs, and decoders of its text.
inline constexpr int64_t kRunningRequestBytes = int64_t{24} << 10;
// Held for a byte of a waiting request's body: as received, or its text as parsed.
inline constexpr int64_t kHeldPerRequestByte = 1;
// Held for a byte of an answer: a quarter more while it grows; all of it twice when a stream's
// event is made of what waited.
inline constexpr int64_t kHeldPerAnswerByte = 2;
// Held for a byte of the one message that is being parsed and tokenised: 50 were measured with
// Llama 2's tokenizer and 4 MiB of spaces, 38 with others.
inline constexpr int64_t kHeldPerTextByte = 56;
// Beside that, for all of gRPC's threads together (at most 16): requests that are short enough to
// be parsed and tokenised where they arrive.
inline constexpr int64_t kShortRequestsBytes = int64_t{14} << 20;
// The budget that a generation of max_model_len tokens with 20 log probabilities needs in order to
// be accepted, for each token: 253 bytes, 16 of text, and the eighth that is kept for longer text.
inline constexpr int64_t kMostAnswerBytesPerToken = 320;

struct HostQuotas {
  int64_t message_bytes = int64_t{4} << 20;  // the largest request that is read
  int64_t grpc_bytes = int64_t{256} << 20;   // gRPC's resource quota
  int max_connections = 1024;
  int max_open_calls = 8192;  // of all connections together
  // Bodies of requests, all together: from a body's first byte until the service has taken the call
  // over (the first frame of its answer), as bytes on the wire.
  int64_t request_bytes = int64_t{64} << 20;
  // Answers that are not finished or not sent, all together, as bytes on the wire.
  int64_t answer_bytes = int64_t{256} << 20;
  // An answer that its client has not taken so long after its end is ended.
  int unread_answer_ms = 120'000;
  int64_t text_bytes = int64_t{32} << 20;  // long texts that wait to be tokenised
  // All of the above and what goes with it: how much the process may grow beyond what is resident
  // at READY. 0: not known, and nothing is closed for it.
  int64_t total_bytes = 0;
};

// What is held for one of them beside the bytes above, at the most.
inline constexpr int64_t kConnectionBytes = int64_t{64} << 10;  // its transport, its guard
inline constexpr int64_t kOpenCallBytes = int64_t{24} << 10;    // gRPC's state of a call, and ours
// The control port's own connections, calls and messages.
inline constexpr int64_t kControlPortBytes = int64_t{12} << 20;

}  // namespace bulkhead
