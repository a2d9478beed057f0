"""report.html of `bench serve`: the charts, the table, and how it was measured."""
import html

from bench.charts import html_table, lines, page, stacked_bars, svg
from bench.console import console
from bench.records import completed, first_token, last_token, time_per_output_token
from bench.text import clock

MOST_POINTS = 400
SLICES = 60
MIB = 1 << 20


def report_page(run, requests, result):
    """Needs matplotlib. `run`, `requests`: of records.load; `result`: of result_of."""
    ours = result["x_bulkhead"]
    done = [r for r in requests if completed(r)]
    charts = [*_latencies(done), *_load(run, requests), *_split(ours["time_split_ms"])]
    if "server" in ours:
        charts += _memory(ours["memory"], run["load"])
    warnings = "".join(f"<p class=\"bad\">Invalid: {html.escape(why)}</p>\n" for why in ours["why_invalid"])
    body = (warnings + "<div class=\"charts\">\n" + "".join(svg(drawn) for drawn, _ in charts) + "</div>\n"
            f"<h2>Figures</h2>\n<pre>{html.escape(console(run, result))}</pre>\n"
            f"<h2>How it was measured</h2>\n{_facts(result)}")
    return page(f"bench serve: {result['model_id']}", body)


def _cumulative(values):
    """The share of values that are at most x."""
    ascending = sorted(values)
    stride = max(1, len(ascending) // MOST_POINTS)
    at = [i for i in range(len(ascending)) if i % stride == 0 or i + 1 == len(ascending)]
    return [ascending[i] for i in at], [100 * (i + 1) / len(ascending) for i in at]


def _latencies(done):
    firsts = [r for r in done if r["times"]]
    ttft = [1e3 * (first_token(r) - r["scheduled_s"]) for r in firsts]
    per_token = [1e3 * t for t in map(time_per_output_token, done) if t is not None]
    both = ("from the scheduled arrival", "scheduled_s"), ("from sending", "sent_s")
    yield lines("Time to first token", "ms", "% of requests", {
        name: _cumulative([1e3 * (first_token(r) - r[since]) for r in firsts]) for name, since in both})
    yield lines("Time per output token", "ms", "% of requests", {"": _cumulative(per_token)})
    yield lines("End-to-end latency", "ms", "% of requests", {
        name: _cumulative([1e3 * (last_token(r) - r[since]) for r in done]) for name, since in both})
    stride = max(1, len(firsts) // (5 * MOST_POINTS))
    yield lines("Time to first token over the run", "scheduled at, s", "ms",
                {".": ([r["scheduled_s"] for r in firsts[::stride]], ttft[::stride])})


def _load(run, requests):
    """Of the last run, in slices."""
    slice_s = (run["durations_s"] or [0])[-1] / SLICES
    if slice_s <= 0:
        return
    tokens, in_flight = [0.0] * SLICES, [0.0] * SLICES

    def slice_of(time_s):
        return min(max(int(time_s / slice_s), 0), SLICES - 1)

    for request in requests:
        if request["run"] != len(run["durations_s"]) - 1:
            continue
        for time_s, count in zip(request["times"], request["counts"]):
            tokens[slice_of(time_s)] += count / slice_s
        if request["sent_s"] is None:
            continue
        for i in range(slice_of(request["sent_s"]), slice_of(request["end_s"]) + 1):
            inside = min(request["end_s"], (i + 1) * slice_s) - max(request["sent_s"], i * slice_s)
            in_flight[i] += max(0.0, inside) / slice_s
    middles = [(i + 0.5) * slice_s for i in range(SLICES)]
    yield lines("Output tokens per second", "s", "tokens/s", {"": (middles, tokens)})
    yield lines("Requests in flight", "s", "requests", {"": (middles, in_flight)})


def _split(split):
    if split["count"] == 0:
        return
    parts = {"client wait": "client_wait", "tokenising": "prepare", "queue": "queue", "prefill": "prefill",
             "decode": "decode", "network, gRPC": "network"}
    yield stacked_bars("Where the time went (means)", "ms",
                       {"a request": {name: split[part]["value"] for name, part in parts.items()}}, list(parts))
    spent = split["of_prefill_and_decode"]
    parts = {"model and scheduling": "computing", "collectives": "collective", "sampling": "sampling",
             "detokenising": "detokenise"}
    yield stacked_bars("What prefill and decode spent (means)", "ms", {
        "a request": {name: spent[part]["value"] for name, part in parts.items() if spent[part] is not None}},
                       [name for name, part in parts.items() if spent[part] is not None])


def _memory(memory, load):
    names = list(dict.fromkeys(term for rank in memory["ranks"] for term in rank["arenas"]))
    yield stacked_bars("Memory taken at start", "MiB", {
        f"rank {rank['rank']}" + (" (bottleneck)" if rank["rank"] == memory["binding_rank"] else ""):
            {term: taken / MIB for term, taken in rank["arenas"].items()} for rank in memory["ranks"]}, names)
    if load is not None:
        yield lines("KV blocks in use", "s since the measurement began", "blocks", {
            "": ([s["time_s"] for s in load["samples"]], [s["kv_blocks_used"] for s in load["samples"]])})


def _facts(result):
    ours = result["x_bulkhead"]
    rows = [("what", "value"), ("date (UTC)", result["date"]),
            ("command", " ".join(["bulkhead bench serve", *ours["client"]["args"]])),
            ("client", f"{ours['client']['version']} on {ours['client']['host']}")]
    if "server" not in ours:
        return html_table(rows)
    server = ours["server"]
    rows += [("server: version", server["version"]), ("ranks", server["tensor_parallel_size"]),
             ("model", f"{server['model']} ({server['architecture']}, {server['weight_dtype']}, "
                       f"KV {server['kv_cache_dtype']})"),
             ("config.json, sha256", server["config_sha256"]),
             *((f"server: {name}", value) for name, value in server["provenance"].items())]
    clocks = dict(enumerate(server["clock_offsets_us"]))
    ranks = [("rank", "host", "device", "cores", "NUMA nodes", "clock, us")]
    for rank in ours["memory"]["ranks"]:
        one = clocks.get(rank["rank"])
        ranks.append((rank["rank"], rank["host"], rank["device"], rank["cores"], rank["numa_nodes"],
                      clock(one["offset"], one["error"]) if one else "-"))
    return html_table(rows) + html_table(ranks)
