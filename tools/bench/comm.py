"""`bench comm`: what the program measured of each collective, by the formulas of nccl-tests."""
import json
import sys

from bench.ends import say
from bench.estimates import median, quantile
from bench.flags import Flags
from bench.report import json_text
from bench.text import placement, table


def run(_program, args):
    flags = Flags("comm", "", "")
    flags.add_argument("--json", action="store_true")
    options = flags.parse(args)
    measured = json.load(sys.stdin)
    say(json_text(comm_json(measured)) if options.json else comm_table(measured))
    return 0


def bus_factor(collective, ranks):
    """What algorithm bandwidth is multiplied with, so that the outcome can be held against the speed of the hardware
    whatever the number of ranks."""
    others = (ranks - 1) / ranks
    return {"all_reduce": 2 * others, "gather": others, "all_gather": others}.get(collective, 1)


def figures(case, ranks):
    """What the table and the JSON show of a case; `bare_p50_us` is absent where there is no bare loop."""
    calls = sorted(case["call_s"])
    p50_s = quantile(calls, 0.5)
    rate = 1e-9 * case["bytes"] / p50_s if p50_s > 0 else 0
    result = {"calls": len(calls), "p50_us": 1e6 * p50_s, "p99_us": 1e6 * quantile(calls, 0.99),
              "algorithm_gb_per_s": rate, "bus_gb_per_s": rate * bus_factor(case["collective"], ranks)}
    # Whichever way of sharing the work is the faster one at this size.
    bare_s = min((median(case[way]) for way in ("bare_whole_s", "bare_half_s") if case[way]), default=0)
    if bare_s > 0:
        result.update({"bare_p50_us": 1e6 * bare_s, "of_bare": p50_s / bare_s})
    return result


def comm_json(measured):
    """`measured`: as the program writes it."""
    ranks = measured["tensor_parallel_size"]
    return {**measured, "cases": [{**{key: case[key] for key in ("collective", "bytes", "message")},
                                   **figures(case, ranks)} for case in measured["cases"]],
            "pairs": [{"ranks": pair["ranks"], "latency_us": 1e6 * pair["latency_s"],
                       "gb_per_s": 1e-9 * pair["bytes_per_s"]} for pair in measured["pairs"]]}


def comm_table(measured):
    result = comm_json(measured)
    has_bare = any("of_bare" in case for case in result["cases"])
    rows = [["collective", "bytes", "message", "p50 us", "p99 us", "algbw GB/s", "busbw GB/s", "calls",
             *(["bare p50 us", "of bare"] if has_bare else [])]]
    for case in result["cases"]:
        numbers = [f"{case[key]:.2f}" for key in ("p50_us", "p99_us", "algorithm_gb_per_s", "bus_gb_per_s")]
        bare = [f"{case['bare_p50_us']:.2f}", f"{case['of_bare']:.2f}x"] if "of_bare" in case else ["-", "-"]
        rows.append([case["collective"], f"{case['bytes']:,}", case["message"] or "-", *numbers, str(case["calls"]),
                     *(bare if has_bare else [])])
    text = (placement(result["hosts"]) + ("" if result["may_spin"] else ", more ranks than cores: waits yield")
            + "; every answer checked\n" + table(rows))
    if result["shared_core_share"] > 0:
        text += (f"behind {100 * result['shared_core_share']:.0f} % of the turns ranks were on one core: such times are "
                 "those of taking turns, not of talking\n")
    if not result["pairs"]:
        return text
    rows = [["ranks", "bare loop us", "GB/s"]]
    for pair in result["pairs"]:
        rows.append([" - ".join(map(str, pair["ranks"])), f"{pair['latency_us']:.2f}", f"{pair['gb_per_s']:.2f}"])
    return text + "\n" + table(rows)
