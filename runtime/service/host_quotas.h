// HostQuotas: host memory of rank 0 for its clients. Planned before anything is allocated
// (launcher/planning/host_budget.h) and enforced by the service, each quota where it is named;
// their sum is the plan's host budget.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace bulkhead {

// Text bytes budgeted per token of a generation; longer text uses a reserved part of the budget.
inline constexpr int64_t kTextBytesPerToken = 16;
// Maximum budget of a stream from its admission on.
inline constexpr int64_t kStreamShareBytes = int64_t{16} << 10;

// Per admitted request, besides its tokens and its call: state in service, coordinator and
// scheduler, with 16 stop strings of 256 bytes and 256 stop ids.
inline constexpr int64_t kRequestBytes = int64_t{12} << 10;
// Additionally while it runs, or waits after it was preempted or resumed: stop string tables (4
// bytes per byte) and text decoders.
inline constexpr int64_t kTextStreamBytes = int64_t{24} << 10;
// Memory per byte of a waiting request's body: as received, or its text as parsed.
inline constexpr int64_t kHeldPerRequestByte = 1;
// Memory per byte of an answer: a quarter more while it grows; twice when a stream's event is built
// from buffered output.
inline constexpr int64_t kHeldPerAnswerByte = 2;
// Memory per byte of the single message being parsed and tokenised: measured 50 with Llama 2's
// tokenizer and 4 MiB of spaces, 38 with others.
inline constexpr int64_t kHeldPerTextByte = 56;
// In addition, for all of gRPC's threads (at most 16): short requests, which are parsed (600 KiB
// for the most objects, grpc/raw_message.cc) and tokenised (16 KiB of text) on arrival.
inline constexpr int64_t kShortRequestsBytes = int64_t{24} << 20;
// Budget per token for a generation of max_model_len tokens with 20 log probabilities to be
// accepted: 258 bytes, 16 of text, 4 for penalties, and the eighth reserved for longer text.
inline constexpr int64_t kMaxAnswerBytesPerToken = 320;

struct HostQuotas {
  int64_t message_bytes = int64_t{4} << 20;  // largest request accepted
  // A longer message is read up to this much more, for the service to refuse it with a typed
  // reason; beyond that the guard refuses it.
  int64_t refused_message_bytes = int64_t{1} << 20;
  int64_t grpc_bytes = int64_t{256} << 20;  // gRPC's resource quota
  int max_connections = 1024;
  int max_http_connections = 0;  // one call at a time on each
  // Largest answer of /metrics; 0: it is not served. At most kMaxScrapes of a port are held at
  // once.
  int64_t metrics_bytes = 0;
  int max_open_calls = 8192;  // over all connections
  // Request bodies in total: from a body's first byte until the service has taken over the call
  // (first frame of the answer), as bytes on the wire.
  int64_t request_bytes = int64_t{64} << 20;
  // Unfinished or unsent answers in total, as bytes on the wire.
  int64_t answer_bytes = int64_t{256} << 20;
  // An answer that is still unread this long after its end is dropped.
  int unread_answer_ms = 120'000;
  int64_t text_bytes = int64_t{32} << 20;  // long texts waiting to be tokenised
  // Structured output: the trie of the tokens, grammars, and their automata with masks. 0: there is
  // no tokenizer.
  int64_t structured_bytes = 0;
  // Sum of all the above and its overhead: how much the process may grow beyond its resident size
  // at READY. 0: unknown, and never a reason to close anything.
  int64_t total_bytes = 0;
};

// Maximum memory for one of each, besides the bytes above.
inline constexpr int64_t kConnectionBytes = int64_t{64} << 10;  // transport and guard
// HTTP: a request's head while it is read, then a part of the answer as JSON.
inline constexpr int64_t kHttpConnectionBytes = int64_t{24} << 10;
// With TLS, in addition: OpenSSL's state, and a record in OpenSSL and in our buffers, each way.
inline constexpr int64_t kTlsConnectionBytes = int64_t{96} << 10;
// gRPC, if calls need an API key: a header block while it is decoded (kMaxPayloadBytes).
inline constexpr int64_t kHeaderReaderBytes = int64_t{48} << 10;
// --metrics-port.
inline constexpr int kMetricsConnections = 16;
// Answers of /metrics being made or sent, per port.
inline constexpr int kMaxScrapes = 4;
// Per byte of an answer while it is made: its source data, and the growing text.
inline constexpr int64_t kHeldPerMetricsByte = 6;
// gRPC's call state and ours: measured 13 KiB, and 52 with 8 KiB of the smallest fields of
// metadata.
inline constexpr int64_t kOpenCallBytes = int64_t{56} << 10;
// The control port's own connections, calls and messages.
inline constexpr int64_t kControlPortBytes = int64_t{12} << 20;

// A request ends when no byte of its body arrives for kStalledBodyTime, or when the body is not
// complete after kMaxBodyTime plus its size at kMinBodyRate; while others wait for memory, also
// when it arrived more slowly than kMinBodyRate for kPressedBodyTime.
inline constexpr absl::Duration kStalledBodyTime = absl::Seconds(10);
inline constexpr absl::Duration kPressedBodyTime = absl::Seconds(2);
inline constexpr absl::Duration kMaxBodyTime = absl::Seconds(60);
inline constexpr int64_t kMinBodyRate = int64_t{64} << 10;  // bytes a second
// How long a body waits for memory before it is refused.
inline constexpr absl::Duration kMaxWaitTime = absl::Seconds(5);

}  // namespace bulkhead
