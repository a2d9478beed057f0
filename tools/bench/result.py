"""result.json of `bench serve`: vLLM's keys with vLLM's definitions, and ours below "x_bulkhead"."""
from bench import client_facts, definitions, server_facts
from bench.estimates import key
from bench.records import chunk_gaps, completed, first_token, has_limits, last_token
from bench.summary import summarize

FORMAT = 1


def result_of(run, requests):
    """`run`, `requests`: as of records.load."""
    percents, workload = run["percentiles"], run["workload"]
    summary = summarize(requests, run["durations_s"], percents, run["goodput"])
    throughput, metrics = summary["throughput"], summary["latencies"]
    model = run["server"]["model"]["served_model_name"] if run["server"] else "null"
    result = {"date": run["date"], "endpoint_type": "bulkhead-grpc", "backend": "bulkhead-grpc",
              "label": run["label"], "model_id": model, "tokenizer_id": model, "num_prompts": len(requests) + run["unsent"],
              **run["metadata"], "request_rate": workload["request_rate"], "burstiness": workload["burstiness"],
              "max_concurrency": workload["max_concurrency"], "duration": throughput["duration_s"],
              "completed": summary["completed"], "failed": summary["failed"],
              "total_input_tokens": summary["input_tokens"], "total_output_tokens": summary["output_tokens"],
              "request_throughput": throughput["requests_per_s"]["value"],
              "request_goodput": throughput["good_requests_per_s"],
              "output_throughput": throughput["output_tokens_per_s"]["value"],
              "total_token_throughput": throughput["total_tokens_per_s"]["value"],
              "max_output_tokens_per_s": summary["peak_tokens_per_s"],
              "max_concurrent_requests": summary["peak_concurrency"],
              **_vllm("ttft", metrics["ttft_from_send_ms"], percents), **_vllm("tpot", metrics["tpot_ms"], percents),
              **_vllm("itl", metrics["chunk_gap_ms"], percents),
              **_vllm("e2el", metrics["e2el_from_send_ms"], percents)}
    if workload["max_concurrency"] is not None:
        result.update(_vllm("client_queue_time", metrics["send_delay_ms"], percents))
    result.update(server_facts.drafts(run["load"]) or {})
    if run["save_detailed"]:
        result.update(_details(requests))
    result["x_bulkhead"] = _ours(run, requests, summary)
    return result


def _vllm(name, values, percents):
    """mean_ttft_ms, median_ttft_ms, std_ttft_ms, p99_ttft_ms ..."""
    none = {"value": None if values["count"] else 0}
    keys = {f"mean_{name}_ms": values.get("mean", none)["value"],
            f"median_{name}_ms": values.get("median", none)["value"], f"std_{name}_ms": values.get("std", 0)}
    for percent in percents:
        keys[f"{key(percent)}_{name}_ms"] = values.get(key(percent), {"value": None})["value"]
    return keys


def _details(requests):
    """vLLM's lists of every request."""
    rows = []
    for request in requests:
        due, done = request["scheduled_s"], completed(request)
        sent = due if request["sent_s"] is None else request["sent_s"]
        first = first_token(request)
        rows.append((request["prompt_tokens"], request["completion_tokens"] if done else 0,
                     0 if first is None else first - sent, chunk_gaps(request),
                     last_token(request) - sent if done else 0, sent, sent - due,
                     request.get("error", {}).get("message", "")))
    names = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _ours(run, requests, summary):
    client = client_facts.client(run["client"], requests)
    why_invalid = [] if run["null_server"] else client_facts.why_invalid(summary, client)
    ours = {"format": FORMAT, "valid": not why_invalid, "why_invalid": why_invalid, "interrupted": run["interrupted"],
            "unfinished": summary["unfinished"] + run["unsent"], "workload": run["workload"], "latencies": summary["latencies"],
            "throughput": summary["throughput"]}
    if has_limits(run["goodput"]):
        ours["goodput"] = {**run["goodput"], "good_requests": summary["good"]}
    ours.update({"steady": summary["steady"], "runs": summary["runs"],
                 "failures_by_code": summary["failures_by_code"], "failures_by_reason": summary["failures_by_reason"],
                 "time_split_ms": summary["split"], "cached_prompt_tokens": summary["cached_prompt_tokens"],
                 "client": client})
    if run["server"]:
        ours["server"] = server_facts.server(run["server"])
        ours["memory"] = server_facts.memory(run["server"], run["load"])
    ours["definitions"] = {one.name: one.formula for one in definitions.DEFINITIONS}
    return ours
