"""The table of `bench serve`: the rows that vLLM's has, in its order, then ours."""
from bench.estimates import key, least_count
from bench.text import bytes_text, clock

WIDTH = 50


class Table:
    def __init__(self):
        self.lines = []

    def title(self, title, fill="-"):
        self.lines.append(fill * ((WIDTH - len(title)) // 2) + title + fill * ((WIDTH - len(title) + 1) // 2))

    def row(self, name, value):
        """A text, a count, a figure or an estimate."""
        if isinstance(value, dict):
            interval = "" if value["low"] is None else f"[{value['low']:.2f} - {value['high']:.2f}]"
            value = f"{value['value']:<10.2f} {interval}".rstrip()
        elif isinstance(value, float):
            value = f"{value:.2f}"
        self.lines.append(f"{name:<40} {value}")


def console(run, result):
    """`run`: of records.load; `result`: of result_of."""
    ours = result["x_bulkhead"]
    table = Table()
    table.title(" Serving Benchmark Result ", "=")
    _head(run, result, table)
    for title, name in (("Time to First Token", "TTFT"), ("Time per Output Token (excl. 1st token)", "TPOT"),
                        ("Inter-token Latency", "ITL"), ("End-to-end Latency", "E2EL")):
        _latency(title, name, ours["latencies"][name.lower() + "_ms"], run["percentiles"], table)
    _drafts(result, table)
    _split(ours, table)
    _steady(ours["steady"], table)
    if "server" in ours:
        _memory(ours["memory"], table)
        _clocks(ours["server"]["clock_offsets_us"], table)
    _client(ours["client"], table)
    _end(ours, table)
    table.title("", "=")
    table.lines.append("[a - b]: 95 % interval. Latencies count from the scheduled arrival; 'bulkhead bench definitions' "
                       "says how.")
    if result["completed"] and ours["throughput"]["requests_per_s"]["low"] is None:
        table.lines.append("No intervals: they need numpy (apt install python3-numpy).")
    if ours["unfinished"] > 0:
        table.lines.append(f"Stopped early: {ours['unfinished']} requests had no end.")
    table.lines += ["INVALID: " + why for why in ours["why_invalid"]]
    return "\n".join(table.lines) + "\n"


def _head(run, result, table):
    throughput, workload = result["x_bulkhead"]["throughput"], run["workload"]
    table.row("Successful requests:", result["completed"])
    table.row("Failed requests:", result["failed"])
    if workload["max_concurrency"] is not None:
        table.row("Maximum request concurrency:", workload["max_concurrency"])
    if workload["ramp_up_strategy"] is None and workload["request_rate"] != "inf":
        table.row("Request rate configured (RPS):", float(workload["request_rate"]))
    table.row("Benchmark duration (s):", float(result["duration"]))
    table.row("Total input tokens:", result["total_input_tokens"])
    table.row("Total generated tokens:", result["total_output_tokens"])
    table.row("Request throughput (req/s):", throughput["requests_per_s"])
    if throughput["good_requests_per_s"] is not None:
        table.row("Request goodput (req/s):", float(throughput["good_requests_per_s"]))
    table.row("Output token throughput (tok/s):", throughput["output_tokens_per_s"])
    table.row("Peak output token throughput (tok/s):", float(result["max_output_tokens_per_s"]))
    table.row("Peak concurrent requests:", float(result["max_concurrent_requests"]))
    table.row("Total token throughput (tok/s):", throughput["total_tokens_per_s"])


def _latency(title, name, values, percents, table):
    table.title(title)
    table.row(f"Mean {name} (ms):", values.get("mean", "none"))
    if values["count"] == 0:
        return
    table.row(f"Median {name} (ms):", values["median"])
    for percent in percents:
        few = f"n = {values['count']}, needs {least_count(percent)}"
        table.row(f"P{key(percent)[1:]} {name} (ms):", values.get(key(percent), few))


def _drafts(result, table):
    if "spec_decode_num_drafts" not in result:
        return
    table.title("Speculative Decoding")
    table.row("Acceptance rate (%):", float(result["spec_decode_acceptance_rate"]))
    table.row("Acceptance length:", float(result["spec_decode_acceptance_length"]))
    table.row("Drafts:", result["spec_decode_num_drafts"])
    table.row("Draft tokens:", result["spec_decode_draft_tokens"])
    table.row("Accepted tokens:", result["spec_decode_accepted_tokens"])
    table.row("Per-position acceptance (%):", "")
    for position, rate in enumerate(result["spec_decode_per_position_acceptance_rates"]):
        table.row(f"  Position {position}:", 100.0 * rate)


def _split(ours, table):
    split = ours["time_split_ms"]
    table.title("Counted from Sending")
    table.row("Mean TTFT (ms):", ours["latencies"]["ttft_from_send_ms"].get("mean", "none"))
    table.row("Mean E2EL (ms):", ours["latencies"]["e2el_from_send_ms"].get("mean", "none"))
    if split["count"] == 0:
        return
    table.title("Where the Time Went (means)")
    for row, name in (("Waiting in the client (ms):", "client_wait"),
                      ("Server: tokenising (ms):", "prepare"), ("Server: queue (ms):", "queue"),
                      ("Server: prefill (ms):", "prefill"), ("Server: decode (ms):", "decode"),
                      ("Network, gRPC (ms):", "network")):
        table.row(row, float(split[name]["value"]))
    table.title("Of Prefill and Decode (means)")
    for row, name in (("Model and scheduling (ms):", "computing"), ("Collectives (ms):", "collective"),
                      ("Sampling (ms):", "sampling"), ("Detokenising (ms):", "detokenise")):
        if split["of_prefill_and_decode"][name] is not None:
            table.row(row, float(split["of_prefill_and_decode"][name]["value"]))


def _steady(steady, table):
    if steady is None:
        return
    table.title("Steady Window")
    table.row("Requests that were due in it:", steady["requests"])
    table.row("Duration (s):", float(steady["throughput"]["duration_s"]))
    table.row("Output token throughput (tok/s):", steady["throughput"]["output_tokens_per_s"])
    for name in ("TTFT", "TPOT", "E2EL"):
        values = steady["latencies"][name.lower() + "_ms"]
        if values["count"] > 0:
            table.row(f"Mean {name} (ms):", values["mean"])


def _memory(memory, table):
    table.title("Memory")
    for rank in memory["ranks"]:
        bottleneck = f" (bottleneck: {memory['binding_term']})" if rank["rank"] == memory["binding_rank"] else ""
        table.row(f"Rank {rank['rank']}{' on ' + rank['host'] if rank['host'] else ''}:",
                  f"{bytes_text(sum(rank['arenas'].values()))} taken, {bytes_text(rank['free_bytes'])} left{bottleneck}")
    if "kv_blocks" not in memory:
        return
    at_least = "" if memory["kv_blocks_used_peak_is_exact"] else "at least "
    table.row("KV blocks used at the most:", f"{at_least}{memory['kv_blocks_used_peak']} of {memory['kv_blocks']}")
    table.row("Preemptions:", memory["preemptions"])
    table.row("Refusals:", ", ".join(f"{reason} {count}" for reason, count in memory["refusals"].items()) or "none")
    table.row("Device allocations after READY:", memory["device_allocations_after_ready"])
    for rank, device in enumerate(memory["devices"]):
        lost = device["free_bytes_at_ready"] - device["free_bytes_least"]
        table.row(f"GPU of rank {rank}, free at the least:", bytes_text(device["free_bytes_least"]) + (
            f", {bytes_text(lost)} less than at READY" if lost else ", as at READY"))


def _clocks(clocks, table):
    """Where the clocks of a group of several hosts may be apart."""
    if len(clocks) < 2:
        return
    table.title("Clocks against Rank 0's")
    for rank, one in enumerate(clocks[1:], 1):
        table.row(f"Rank {rank} (us):", clock(one["offset"], one["error"]))


def _client(client, table):
    table.title("Client")
    table.row("Sent late, P99 (ms):", float(client["send_lag_p99_ms"]))
    table.row("Busiest thread (%):", 100.0 * client["busiest_thread_share"])
    if client["ceiling"] is not None:
        table.row("Ceiling of the client:", f"{client['ceiling']['requests_per_s']:.0f} requests/s of 1 token, "
                                            f"{client['ceiling']['tokens_per_s']:.0f} tokens/s")


def _end(ours, table):
    if len(ours["runs"]) > 1:
        table.title("Runs")
        for i, run in enumerate(ours["runs"], 1):
            table.row(f"Run {i}:", f"{run['output_throughput']:.2f} tok/s, mean TTFT {run['mean_ttft_ms']:.2f} ms, "
                                   f"TPOT {run['mean_tpot_ms']:.2f} ms, E2EL {run['mean_e2el_ms']:.2f} ms")
    if ours["failures_by_code"]:
        table.title("Failures")
        for code, count in ours["failures_by_code"].items():
            table.row(code + ":", count)
        for reason, count in ours["failures_by_reason"].items():
            table.row(f"  reason {reason}:", count)
