"""What the client did to the figures: how late it sent, and whether they say more of it than of the server."""
from bench.estimates import quantile

MOST_LAG_SHARE = 0.05  # of the median TTFT
UNMEASURED_LAG_MS = 1  # what any machine's timers may be late
MOST_THREAD_SHARE = 0.8
LEAST_SECONDS_FOR_SHARE = 1
MOST_CEILING_SHARE = 0.5


def client(facts, requests):
    """The client's part of result.json. The lags' P99 is of however many there are: it warns, it is no result."""
    lags = sorted(1e3 * r["lag_s"] for r in requests if r["sent_s"] is not None)
    return {**{name: facts[name] for name in ("version", "host", "threads", "args")},
            "send_lag_median_ms": quantile(lags, 0.5), "send_lag_p99_ms": quantile(lags, 0.99),
            "send_lag_max_ms": lags[-1] if lags else 0, "busiest_thread_share": facts["busiest_thread_share"],
            "ceiling": facts["ceiling"]}


def why_invalid(summary, facts):
    """`facts`: as of client(). Empty: the figures are the server's."""
    reasons = []
    ttft = summary["latencies"]["ttft_ms"].get("median", {"value": 0})["value"]
    most_lag_ms = max(UNMEASURED_LAG_MS, MOST_LAG_SHARE * ttft)
    if facts["send_lag_p99_ms"] > most_lag_ms:
        reasons.append(f"one request in a hundred was sent {facts['send_lag_p99_ms']:.2f} ms later than it was due "
                       f"(at most {most_lag_ms:.2f} ms: 5 % of the median TTFT); use more --client-threads or another "
                       "machine for the client")
    share = facts["busiest_thread_share"]
    if share > MOST_THREAD_SHARE and summary["throughput"]["duration_s"] > LEAST_SECONDS_FOR_SHARE:
        reasons.append(f"a thread of the client was busy {100 * share:.0f} % of the time (at most "
                       f"{100 * MOST_THREAD_SHARE:.0f} %); use more --client-threads")
    ceiling = facts["ceiling"]
    if ceiling is None:
        return reasons
    reached = max(summary["peak_tokens_per_s"] / ceiling["tokens_per_s"],
                  summary["throughput"]["requests_per_s"]["value"] / ceiling["requests_per_s"])
    if reached > MOST_CEILING_SHARE:
        reasons.append(f"the run reached {100 * reached:.0f} % of what this client can do at all (at most "
                       f"{100 * MOST_CEILING_SHARE:.0f} %: {ceiling['requests_per_s']:.0f} requests/s, "
                       f"{ceiling['tokens_per_s']:.0f} tokens/s); use another machine for the client")
    return reasons
