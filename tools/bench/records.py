"""What `bench serve` left in a folder: run.json and requests.jsonl. Times are seconds since the run began."""
import array
import json
import os

from bench.ends import USAGE, Failure


def load(folder):
    """The run's facts, and its requests that were sent (with --save-detailed all of them), in the order in which they
    were due; run["unsent"] counts the others."""
    try:
        with open(os.path.join(folder, "run.json"), encoding="utf-8", errors="replace") as f:
            run = json.load(f)
        with open(os.path.join(folder, "requests.jsonl"), encoding="utf-8", errors="replace") as f:
            requests, run["unsent"] = [], 0
            for line in f:
                if '"sent_s":null' in line and not run["save_detailed"]:
                    run["unsent"] += 1  # a run that was stopped may have a million of them
                else:
                    requests.append(compact(json.loads(line)))
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} holds no measurement of 'bulkhead bench serve --result-dir': {error}", USAGE) from error
    return run, requests


def compact(request):
    """The same with its arrivals as arrays: when messages came, and how many tokens each brought."""
    arrivals = request.pop("arrivals")
    request["times"] = array.array("d", (time_s for time_s, _ in arrivals))
    request["counts"] = array.array("l", (count for _, count in arrivals))
    return request


def completed(request):
    return request["outcome"] == "completed" and request["sent_s"] is not None


def tokens(request):
    return sum(request["counts"])


def first_token(request):
    """Absent where it has no token."""
    return request["times"][0] if request["times"] else None


def last_token(request):
    """Its end, when it has no token."""
    return request["times"][-1] if request["times"] else request["end_s"]


def time_per_output_token(request):
    """Absent where it has not two tokens."""
    count = tokens(request)
    return (last_token(request) - first_token(request)) / (count - 1) if count > 1 else None


def chunk_gaps(request):
    """Each message's gap to the one before."""
    return [b - a for a, b in zip(request["times"], request["times"][1:])]


def inter_token_gaps(request):
    """One value per token behind the first message's: a message's gap, shared by its tokens."""
    return [gap / count for gap, count in zip(chunk_gaps(request), request["counts"][1:]) for _ in range(count)]


def has_limits(goodput):
    return any(limit is not None for limit in goodput.values())


def is_good(request, goodput):
    """Whether it keeps every limit, counted from its scheduled arrival."""
    first, due = first_token(request), request["scheduled_s"]
    figures = {"ttft_ms": (request["end_s"] if first is None else first) - due,
               "tpot_ms": time_per_output_token(request) or 0, "e2el_ms": last_token(request) - due}
    return all(limit is None or 1e3 * figures[name] <= limit for name, limit in goodput.items())


def first_failure(requests):
    """The request that failed before all others of the first run that has one; None: none."""
    failed = [r for r in requests if r["outcome"] == "failed"]
    return min(failed, key=lambda r: (r["run"], r["end_s"]), default=None)
