"""What each metric of `bench serve` is, and what other tools call it."""
import collections

from bench.ends import USAGE, Failure, say

# `name` as in result.json, `formula` in words; "-" where a tool lacks the metric, or means another one by the name.
Definition = collections.namedtuple("Definition", "name formula vllm guidellm aiperf mlperf")

DEFINITIONS = [Definition(*row) for row in (
    ("ttft", "the first message with a token - the scheduled arrival; one value per request",
     "-", "-", "-", "TTFT (LoadGen also counts from the scheduled time)"),
    ("ttft_from_send", "the first message with a token - the moment of sending",
     "ttft, since the keys mean_ttft_ms ... of result.json are vLLM's", "time_to_first_token_ms",
     "time_to_first_token (leaves out first messages without text)", "-"),
    ("tpot", "(last token - first token) / (tokens - 1); one value per request of two tokens or more",
     "tpot", "inter_token_latency_ms (its mean weighs requests by their tokens)", "inter_token_latency", "TPOT"),
    ("itl", "the time since the message before, divided by the message's tokens; one value per token after the first message",
     "-", "-", "-", "-"),
    ("chunk_gap", "the time since the message before, whatever the message carries; one value per message",
     "itl", "-", "inter_chunk_latency", "-"),
    ("e2el", "the last token - the scheduled arrival", "-", "-", "-", "latency (also from the scheduled time)"),
    ("e2el_from_send", "the last token - the moment of sending", "e2el", "request_latency", "request_latency", "-"),
    ("send_delay", "the moment of sending - the scheduled arrival: waiting for --max-concurrency",
     "client_queue_time", "-", "-", "issue_delay, in its trace"),
    ("request_throughput", "completed requests / (begin of the run to its last end)",
     "request_throughput", "requests_per_second", "request_throughput", "-"),
    ("output_throughput", "tokens of completed requests / (begin of the run to its last end)",
     "output_throughput", "output_tokens_per_second", "output_token_throughput", "completed tokens per second"),
    ("request_goodput",
     "completed requests that keep every --goodput limit, counted from the scheduled arrival, per second",
     "request_goodput (counted from sending)", "-", "goodput (counted from sending)", "-"),
)]

BEGIN = """\
Metrics of 'bulkhead bench serve'. All are over completed requests. The "scheduled arrival"
is when a request was due, whether or not it could be sent then; with --max-concurrency and
no --request-rate it is when another request ended. A message can carry several tokens.
"""

END = """
Names that mislead
  guidellm's time_per_output_token_ms includes the time to the first token; ours, vLLM's and
  MLPerf's TPOT does not. AIPerf's inter_token_latency is one value per request: our tpot.
  vLLM's ITL is one value per message: where messages carry several tokens it is longer than
  the time between tokens.

Percentiles are interpolated linearly (as in numpy). A percentile is printed only if at least
ten values lie beyond it: P90 from 100 values on, P99 from 1000, P99.9 from 10000. Intervals
are 95 % bootstrap intervals: whole requests are resampled, with all their tokens; for
throughputs, 20 equal slices of each run are resampled.

The steady window of a run goes from its first end to its last arrival, without filling and
emptying the server. It needs at least 20 requests, and a quarter of all.

Where the time went: prepare, queue, prefill and decode are the server's, on rank 0's clock
(arrived, submitted to the engine, first scheduled, first token, end): prepare is parsing,
tokenising the prompt and compiling the grammar of a structured output. Network is what remains
of the client's time from sending to the end, gRPC included. These five and the wait in the
client add up to e2el.

Collectives, sampling, detokenising and computing (the model, scheduling) divide prefill +
decode in another way, and add up to it: the time that rank 0 spent between the request's
first scheduling and its end. The whole time of a step counts for each request that runs in
it, since each waits for it: do not add it up over requests. Collectives include waiting for
slower ranks; on GPUs they are not measured separately, and are part of computing.
"""


def text():
    lines = []
    for one in DEFINITIONS:
        lines += ["", one.name, "  " + one.formula]
        for tool in ("vLLM", "guidellm", "AIPerf", "MLPerf"):
            name = getattr(one, tool.lower())
            if name != "-":
                lines.append(f"    {tool:<8} {name}")
    return BEGIN + "\n".join(lines) + "\n" + END


def run(_program, args):
    if args and args[0] not in ("-h", "--help"):
        raise Failure(f"{args[0]} is not known; bench definitions has no flags", USAGE)
    say(text())
    return 0
