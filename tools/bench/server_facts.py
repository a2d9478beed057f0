"""What the server said of itself, before, during and after a measurement: parts of result.json.

run.json has the server's messages as protobuf writes them, with 64-bit numbers as texts."""


def server(facts):
    info, model = facts["info"], facts["model"]
    numbers = {name: int(info[name]) for name in ("max_num_seqs", "max_model_len", "max_num_batched_tokens",
                                                  "max_num_queued_reqs", "block_size", "num_kv_blocks")}
    return {"version": info["version"], "epoch": info["epoch"], "device": info["device"],
            "tensor_parallel_size": int(info["tensor_parallel_size"]), "model": model["served_model_name"],
            "architecture": model["architecture"], "weight_dtype": model["dtype"],
            "kv_cache_dtype": info["kv_cache_dtype"], "config_sha256": model["config_sha256"], **numbers,
            "provenance": dict(sorted(info["provenance"].items())),
            "clock_offsets_us": [{"offset": clock["offset_us"], "error": clock["error_us"]}
                                 for clock in info["clock_offsets"]]}


def memory(facts, load):
    """`load`: of run.json; None: the server was looked at less than twice."""
    table = facts["ranks"]
    result = {"binding_rank": int(table["binding_rank"]), "binding_term": table["binding_term"],
              "host_bytes": int(table["host_bytes"]), "ranks": [_rank(row) for row in table["ranks"]]}
    return result if load is None else {**result, **memory_use(load)}


def _rank(row):
    numbers = {name: int(row[name]) for name in ("total_bytes", "others_bytes", "reserve_bytes")}
    return {"rank": int(row["rank"]), "host": row["host"], "device": row["device"], "cores": row["cores"],
            "numa_nodes": row["numa_nodes"], **numbers,
            "arenas": {arena["term"]: int(arena["bytes"]) for arena in row["arenas"]},
            "free_bytes": int(row["free_bytes"]), "stranded_bytes": int(row["stranded_bytes"]),
            "kv_bytes_per_token": int(row["kv_bytes_per_token"])}


def memory_use(load):
    """What the measurement did to the server's memory. The peak of KV blocks is exact where the server's own
    high-water mark rose; else it is the most that was seen."""
    before, after, samples = load["before"], load["after"], load["samples"]

    def seen(name):
        return max(sample[name] for sample in samples)

    def more(name):
        return int(after[name]) - int(before[name])

    exact = more("num_kv_blocks_used_peak") > 0
    refusals = {reason: int(count) - int(before["num_errors_by_reason"].get(reason, 0))
                for reason, count in sorted(after["num_errors_by_reason"].items())}
    return {"kv_blocks": int(after["num_kv_blocks"]),
            "kv_blocks_used_peak": int(after["num_kv_blocks_used_peak"]) if exact else seen("kv_blocks_used"),
            "kv_blocks_used_peak_is_exact": exact,
            "requests_running_peak": seen("requests_running"), "requests_waiting_peak": seen("requests_waiting"),
            "preemptions": more("num_preemptions_total"),
            "refusals": {reason: count for reason, count in refusals.items() if count > 0},
            "rank0_resident_bytes_peak": seen("resident_bytes"),
            "device_allocations_after_ready": int(after["device_allocations_after_ready"]),
            "devices": [{name: int(device[name]) for name in ("free_bytes", "free_bytes_at_ready", "free_bytes_least")}
                        for device in after["device_memory"]],
            "prefix_cache_queried_tokens": more("prefix_cache_queries_total"),
            "prefix_cache_found_tokens": more("prefix_cache_hits_total")}


def drafts(load):
    """Of speculative decoding during the measurement, under vLLM's keys; None: the server does not speculate, or
    drafted nothing."""
    if not load or not load["after"].get("drafts"):
        return None

    def more(name):
        return int(load["after"]["drafts"][name]) - int(load["before"]["drafts"][name])

    count, tokens, accepted = more("num_drafts"), more("num_draft_tokens"), more("num_accepted_tokens")
    if count == 0:
        return None
    by_position = [int(after) - int(before) for before, after in zip(
        *(load[when]["drafts"]["num_accepted_tokens_per_pos"] for when in ("before", "after")))]
    return {"spec_decode_acceptance_rate": 100 * accepted / tokens, "spec_decode_acceptance_length": 1 + accepted / count,
            "spec_decode_num_drafts": count, "spec_decode_draft_tokens": tokens, "spec_decode_accepted_tokens": accepted,
            "spec_decode_per_position_acceptance_rates": [of / count for of in by_position]}
