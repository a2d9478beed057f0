// The outcome of one request of a benchmark, as seen by the client. Times are seconds since the run
// began, on the client's monotonic clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// A received message with tokens.
struct TokenArrival {
  double time_s = 0;
  int tokens = 0;  // at least 1
};

// Where a request's time went, on rank 0's clock.
struct ServerTimes {
  double prepare_s = 0;  // arrived until submitted to the engine
  double queue_s = 0;    // submitted until first scheduled
  double prefill_s = 0;  // first scheduled until the first token
  double decode_s = 0;   // first token until the end
  int preemptions = 0;
  // Parts of prefill plus decode; absent if the server does not report them.
  std::optional<double> collective_s, sampling_s, detokenise_s;
};

enum class RequestOutcome {
  kUnfinished,  // the benchmark was stopped before its end
  kCompleted,
  kFailed,
};

struct RequestRecord {
  int run = 0;  // of --repeats
  int index = 0;
  std::string request_id;        // as the server named it
  double scheduled_s = 0;        // when it was due
  std::optional<double> sent_s;  // absent: never sent
  double lag_s = 0;              // delay of sending caused by the client
  double end_s = 0;              // when its status arrived
  RequestOutcome outcome = RequestOutcome::kUnfinished;
  std::string code;    // if failed: "RESOURCE_EXHAUSTED"
  std::string reason;  // ErrorInfo's: "QUEUE_FULL"; empty: none
  std::string message;
  int prompt_tokens = 0;
  int cached_prompt_tokens = 0;
  int requested_tokens = 0;
  int completion_tokens = 0;  // the server's count
  std::vector<TokenArrival> arrivals;
  std::string finish_reason;  // "stop", "length"
  std::optional<ServerTimes> server;
};

// One run: its requests, in the order in which they were due.
struct RunRecord {
  std::vector<RequestRecord> requests;
  double duration_s = 0;  // from the start to the last end
};

}  // namespace bulkhead
