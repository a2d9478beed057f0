"""What a measurement's requests amount to. definitions.py says in words what each metric is. Milliseconds."""
import collections

from bench.estimates import describe, mean, mean_of
from bench.records import (chunk_gaps, completed, first_token, has_limits, inter_token_gaps, is_good,
                           last_token, time_per_output_token, tokens)

SLICES = 20  # of a run, for the interval of its throughput
LEAST_STEADY_REQUESTS = 20
LEAST_STEADY_SHARE = 0.25  # of the requests that completed
ON_SERVER = ("prepare", "queue", "prefill", "decode")  # of a request's time, in order


def latencies(requests, percents):
    """A distribution for each metric, over requests that completed."""
    series = {name: ([], []) for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "ttft_from_send_ms",
                                          "e2el_from_send_ms", "chunk_gap_ms", "send_delay_ms")}
    for cluster, request in enumerate(requests):
        def add(name, *seconds):
            values, clusters = series[name]
            values += [1e3 * s for s in seconds]
            clusters += [cluster] * len(seconds)

        due, sent, first, last = request["scheduled_s"], request["sent_s"], first_token(request), last_token(request)
        if first is not None:
            add("ttft_ms", first - due)
            add("ttft_from_send_ms", first - sent)
        per_token = time_per_output_token(request)
        if per_token is not None:
            add("tpot_ms", per_token)
        add("itl_ms", *inter_token_gaps(request))
        add("chunk_gap_ms", *chunk_gaps(request))
        add("e2el_ms", last - due)
        add("e2el_from_send_ms", last - sent)
        add("send_delay_ms", sent - due)
    return {name: describe(*values, percents) for name, values in series.items()}


def time_split(requests):
    """Where the time of the requests went whose end carried the server's times."""
    parts = collections.defaultdict(list)
    for request in requests:
        server = request.get("server_ms")
        if server is None:
            continue
        for name in ON_SERVER:
            parts[name].append(server[name])
        parts["client_wait"].append(1e3 * (request["sent_s"] - request["scheduled_s"]))
        parts["network"].append(1e3 * (request["end_s"] - request["sent_s"])
                                - sum(server[name] for name in ON_SERVER))
        spent = {name: server[name] for name in ("collective", "sampling", "detokenise") if name in server}
        for name, value in spent.items():
            parts[name].append(value)
        parts["computing"].append(server["prefill"] + server["decode"] - sum(spent.values()))
    split = {"count": len(parts["queue"])}
    for name in ("client_wait", *ON_SERVER, "network"):
        split[name] = mean_of(parts[name])
    split["of_prefill_and_decode"] = {"computing": mean_of(parts["computing"])}
    for name in ("collective", "sampling", "detokenise"):
        split["of_prefill_and_decode"][name] = mean_of(parts[name]) if parts[name] else None
    return split


class SliceRates:
    """Amounts laid into equal slices of windows, one for each run, as rates: what the interval of a throughput is
    drawn from."""

    def __init__(self, windows):
        self.windows, self.amount = windows, 0
        self.slices = [[0] * SLICES for _ in windows]

    def add(self, run, time_s, amount):
        begin, end = self.windows[run]
        if begin <= time_s <= end and begin < end:
            self.slices[run][min(SLICES - 1, int((time_s - begin) / (end - begin) * SLICES))] += amount
            self.amount += amount

    def per_second(self):
        total_s = sum(end - begin for begin, end in self.windows)
        rates = [amount * SLICES / (end - begin) for (begin, end), slices in zip(self.windows, self.slices)
                 if end > begin for amount in slices]
        return {**mean_of(rates), "value": self.amount / total_s if total_s > 0 else 0}


def throughput(requests, windows, goodput):
    """Tokens count when they come, prompts with their first token, requests when they end."""
    ended, generated, all_tokens, good = (SliceRates(windows) for _ in range(4))
    for request in requests:
        run, first, last = request["run"], first_token(request), last_token(request)
        ended.add(run, last, 1)
        if is_good(request, goodput):
            good.add(run, last, 1)
        all_tokens.add(run, last if first is None else first, request["prompt_tokens"])
        for time_s, count in zip(request["times"], request["counts"]):
            generated.add(run, time_s, count)
            all_tokens.add(run, time_s, count)
    return {"duration_s": sum(end - begin for begin, end in windows), "requests_per_s": ended.per_second(),
            "output_tokens_per_s": generated.per_second(), "total_tokens_per_s": all_tokens.per_second(),
            "good_requests_per_s": good.per_second()["value"] if has_limits(goodput) else None}


def peaks(requests):
    """The most tokens in any whole second since the first request of a run was sent, and the most requests at once."""
    most_tokens, most_running = 0, 0
    for run in {r["run"] for r in requests}:
        of_run = [r for r in requests if r["run"] == run]
        begin = min(r["sent_s"] for r in of_run)
        per_second = collections.Counter()
        for request in of_run:
            for time_s, count in zip(request["times"], request["counts"]):
                per_second[int(time_s - begin)] += count
        most_tokens = max(most_tokens, *per_second.values(), 0)
        running = 0  # an end counts before a begin of the same time
        for _, change in sorted([(r["sent_s"], 1) for r in of_run] + [(last_token(r), -1) for r in of_run]):
            running += change
            most_running = max(most_running, running)
    return most_tokens, most_running


def run_figures(requests, duration_s):
    """One run on its own, for the spread."""
    done = [r for r in requests if completed(r)]
    firsts = [r for r in done if r["times"]]
    per_token = [t for t in map(time_per_output_token, done) if t is not None]
    return {"duration_s": duration_s, "completed": len(done),
            "failed": sum(r["outcome"] == "failed" for r in requests),
            "request_throughput": len(done) / duration_s if duration_s > 0 else 0,
            "output_throughput": sum(map(tokens, done)) / duration_s if duration_s > 0 else 0,
            "mean_ttft_ms": 1e3 * mean([first_token(r) - r["scheduled_s"] for r in firsts]),
            "mean_tpot_ms": 1e3 * mean(per_token),
            "mean_e2el_ms": 1e3 * mean([last_token(r) - r["scheduled_s"] for r in done])}


def steady_window(requests):
    """Of one run: from the first end, when the server has filled up, to the last arrival; empty when there is none."""
    first_end = min((r["end_s"] for r in requests if completed(r)), default=None)
    last_sent = max((r["sent_s"] for r in requests if r["sent_s"] is not None), default=0)
    return (first_end, last_sent) if first_end is not None and first_end < last_sent else (0, 0)


def steady(by_run, done, percents, goodput):
    """Neither ramp-up nor tail; None where too few requests were due in it."""
    windows = [steady_window(requests) for requests in by_run]
    inside = [r for r in done if windows[r["run"]][0] <= r["scheduled_s"] < windows[r["run"]][1]]
    if len(inside) < max(LEAST_STEADY_REQUESTS, LEAST_STEADY_SHARE * len(done)):
        return None
    # Tokens of requests that began earlier came inside the window, too.
    return {"requests": len(inside), "latencies": latencies(inside, percents),
            "throughput": throughput(done, windows, goodput)}


def summarize(requests, durations_s, percents, goodput):
    """`goodput`: {"ttft_ms": a limit or None, ...}. Runs are counted together; each request's "run" is its number."""
    by_run = [[r for r in requests if r["run"] == run] for run in range(len(durations_s))]
    done = [r for r in requests if completed(r)]
    failed = [r for r in requests if r["outcome"] == "failed"]
    most_tokens, most_running = peaks(done)

    def failures(field):
        return dict(sorted(collections.Counter(r["error"][field] for r in failed if r["error"][field]).items()))

    return {"completed": len(done), "failed": len(failed), "unfinished": len(requests) - len(done) - len(failed),
            "input_tokens": sum(r["prompt_tokens"] for r in done), "output_tokens": sum(map(tokens, done)),
            "cached_prompt_tokens": sum(r["cached_prompt_tokens"] for r in done),
            "peak_tokens_per_s": most_tokens, "peak_concurrency": most_running,
            "good": sum(is_good(r, goodput) for r in done) if has_limits(goodput) else 0,
            "throughput": throughput(done, [(0, duration_s) for duration_s in durations_s], goodput),
            "latencies": latencies(done, percents), "split": time_split(done),
            "steady": steady(by_run, done, percents, goodput),
            "runs": [run_figures(*run) for run in zip(by_run, durations_s)],
            "failures_by_code": failures("code"), "failures_by_reason": failures("reason")}
