#include "launcher/bench/serve/definitions.h"

#include "absl/strings/str_cat.h"

namespace bulkhead {

const std::vector<Definition>& Definitions() {
  static const auto* const definitions = new std::vector<Definition>{
      {"ttft", "the first message with a token - the scheduled arrival; one value per request", "-",
       "-", "-", "TTFT (LoadGen counts from the scheduled time, too)"},
      {"ttft_from_send", "the first message with a token - the moment of sending",
       "ttft, since the keys mean_ttft_ms ... of result.json are vLLM's", "time_to_first_token_ms",
       "time_to_first_token (leaves out first messages without text)", "-"},
      {"tpot",
       "(last token - first token) / (tokens - 1); one value per request of two tokens or more",
       "tpot", "inter_token_latency_ms (its mean weighs requests by their tokens)",
       "inter_token_latency", "TPOT"},
      {"itl",
       "a message's gap to the one before, divided by its tokens; one value per token behind the "
       "first message",
       "-", "-", "-", "-"},
      {"chunk_gap", "a message's gap to the one before, whatever it carries; one value per message",
       "itl", "-", "inter_chunk_latency", "-"},
      {"e2el", "the last token - the scheduled arrival", "-", "-", "-",
       "latency (from the scheduled time, too)"},
      {"e2el_from_send", "the last token - the moment of sending", "e2el", "request_latency",
       "request_latency", "-"},
      {"send_delay", "the moment of sending - the scheduled arrival: waiting for --max-concurrency",
       "client_queue_time", "-", "-", "issue_delay, in its trace"},
      {"request_throughput", "completed requests / (begin of the run to its last end)",
       "request_throughput", "requests_per_second", "request_throughput", "-"},
      {"output_throughput", "tokens of completed requests / (begin of the run to its last end)",
       "output_throughput", "output_tokens_per_second", "output_token_throughput",
       "completed tokens per second"},
      {"request_goodput",
       "completed requests that keep every --goodput limit, counted from the scheduled arrival, "
       "per second",
       "request_goodput (counted from sending)", "-", "goodput (counted from sending)", "-"},
  };
  return *definitions;
}

std::string DefinitionsText() {
  std::string text =
      "Metrics of 'bulkhead bench serve'. All are over completed requests; \"scheduled arrival\" "
      "is\n"
      "when the request was due, whether or not it could be sent then. With --max-concurrency and\n"
      "no --request-rate it is when a slot became free. A message can carry several tokens.\n";
  for (const Definition& one : Definitions()) {
    absl::StrAppend(&text, "\n", one.name, "\n  ", one.formula, "\n");
    for (const auto& [tool, name] :
         {std::pair("vLLM     ", one.vllm), std::pair("guidellm ", one.guidellm),
          std::pair("AIPerf   ", one.aiperf), std::pair("MLPerf   ", one.mlperf)}) {
      if (name != "-") absl::StrAppend(&text, "    ", tool, name, "\n");
    }
  }
  absl::StrAppend(
      &text,
      "\nNames that mislead\n"
      "  guidellm's time_per_output_token_ms includes the time to the first token; ours, vLLM's "
      "and\n"
      "  MLPerf's TPOT does not. AIPerf's inter_token_latency is one value per request: our tpot.\n"
      "  vLLM's ITL is one value per message: where messages carry several tokens it is longer "
      "than\n"
      "  the time between tokens.\n"
      "\n"
      "Percentiles lie linearly between ranks (as numpy's). One is printed only when at least ten\n"
      "observations lie beyond it: P90 from 100 on, P99 from 1000, P99.9 from 10000. Intervals "
      "are\n"
      "95 % bootstrap intervals; requests are resampled whole, with all their tokens. Those of\n"
      "throughputs resample 20 equal slices of each run.\n"
      "\n"
      "The steady window of a run goes from its first end to its last arrival: neither filling up\n"
      "nor emptying counts. It needs 20 requests, and a quarter of all.\n"
      "\n"
      "Where the time went: queue, prefill and decode are the server's, on rank 0's clock\n"
      "(submitted, first scheduled, first token, end); network is what remains of the client's "
      "time\n"
      "from sending to the end, gRPC and tokenising the prompt included. These four and the wait "
      "in\n"
      "the client add up to e2el.\n"
      "\n"
      "Collectives, sampling, detokenising and computing (the model, scheduling) are another cut "
      "of\n"
      "prefill + decode, and add up to it: what rank 0 spent between the request's first "
      "scheduling\n"
      "and its end. A step's time counts whole for each request that runs meanwhile, since each\n"
      "waits for it: do not add it up over requests. Collectives include waiting for slower "
      "ranks;\n"
      "on GPUs they are not known apart, and are in computing.\n");
  return text;
}

}  // namespace bulkhead
