"""`bench simulate`: what a step cost rank 0 in the runs that the program simulated."""
import json
import sys

from bench import charts
from bench.ends import say
from bench.estimates import median, quantile
from bench.flags import Flags
from bench.report import json_text
from bench.text import table

PARTS = ("plan", "encode", "hand_out", "commit")
# Queues are told apart by their order of magnitude: name and the most requests that wait.
QUEUES = (("0", 0), ("1 - 99", 99), ("100 - 999", 999), ("1000 - 9999", 9999), ("10000 -", float("inf")))


def run(_program, args):
    flags = Flags("simulate", "", "")
    flags.add_argument("--json", action="store_true")
    flags.add_argument("--plot")
    options = flags.parse(args)
    result = simulate_json(json.load(sys.stdin))
    say(json_text(result) if options.json else simulate_table(result))
    if options.plot is not None:
        charts.need("--plot")
        charts.save(cost_chart(result), options.plot, "--plot")
    return 0


def by_queue(steps):
    """Medians of the steps, by how many requests waited. Microseconds. `steps`: columns."""
    rows, least = [], 0
    for name, most in QUEUES:
        inside = [i for i, queued in enumerate(steps["queued"]) if least <= queued <= most]
        least = most + 1
        if not inside:
            continue
        parts = {part: [steps[part + "_s"][i] for i in inside] for part in PARTS}
        totals = sorted(map(sum, zip(*parts.values())))
        rows.append({"queue": name, "steps": len(inside),
                     **{part + "_us": 1e6 * median(seconds) for part, seconds in parts.items()},
                     "rank0_p50_us": 1e6 * quantile(totals, 0.5), "rank0_p99_us": 1e6 * quantile(totals, 0.99),
                     "drawn": median([steps["drawn"][i] for i in inside]),
                     "plan_bytes": max(steps["plan_bytes"][i] for i in inside)})
    return rows


def simulate_json(measured):
    """`measured`: as the program writes it."""
    runs = []
    for one in measured["runs"]:
        steps = one["steps"]
        totals = sorted(map(sum, zip(*(steps[part + "_s"] for part in PARTS))))
        runs.append({**{key: value for key, value in one.items() if key != "steps"},
                     "rank0_p50_us": 1e6 * quantile(totals, 0.5), "rank0_p99_us": 1e6 * quantile(totals, 0.99),
                     "by_queue": by_queue(steps)})
    return {**measured, "runs": runs}


def simulate_table(result):
    """Sampling and detokenising are apart: a GPU can sample, and a measured step has both in it."""
    rows = [["ranks", "sequences", "queue", "steps", "plan us", "encode", "hand out", "commit", "rank 0 p50 us", "p99 us",
             "plan bytes", "greedy us", "or sampled", "detokenise"]]
    totals = [["ranks", "sequences", "copies of a plan", "submit us", "simulated s", "tokens/s", "rank 0's share"]]
    token, cost = result["token"], result["assumed"]
    for one in result["runs"]:
        size = [str(one["ranks"]), str(one["max_num_seqs"])]
        for row in one["by_queue"]:
            times = [f"{row[key]:.1f}" for key in (*(part + "_us" for part in PARTS), "rank0_p50_us", "rank0_p99_us")]
            on_top = [f"{row['drawn'] * token[key]:.1f}" for key in ("greedy_us", "sampled_us", "detokenise_us")]
            rows.append([*size, row["queue"], str(row["steps"]), *times, f"{row['plan_bytes']:,}", *on_top])
        totals.append([*size, str(one["copies"]), f"{one['submit_us']:.1f}", f"{one['simulated_s']:.1f}",
                       f"{one['tokens_per_s']:.0f}", f"{100 * one['rank0_share']:.2f} %"])
    return ("measured, rank 0's processor time of a step, medians:\n" + table(rows)
            + f"on top, where rank 0 samples on its CPU, for each sequence: {token['greedy_us']:.1f} us greedily or "
              f"{token['sampled_us']:.1f} us at temperature 1 from {token['vocab_size']} logits, and "
              f"{token['detokenise_us']:.2f} us for the text\n\n"
              f"assumed of a step: {cost['step_us']:g} us, {cost['decode_row_us']:g} for each decoding sequence, "
              f"{cost['prompt_token_us']:g} for each prompt token, {cost['message_us']:g} for each message of rank 0 to "
              "a node\n" + table(totals))


def cost_chart(result):
    """A line per size of the group; both axes logarithmic."""
    series = {}
    for one in sorted(result["runs"], key=lambda one: (one["ranks"], one["max_num_seqs"])):
        xs, ys = series.setdefault(f"{one['ranks']} ranks", ([], []))
        xs.append(one["max_num_seqs"])
        ys.append(one["rank0_p50_us"])
    drawn, axes = charts.lines("Rank 0's cost of a step", "sequences", "median, microseconds", series, log=True)
    for line in axes.lines:
        line.set_marker("o")
    sizes = sorted({one["max_num_seqs"] for one in result["runs"]})
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_xticks([], minor=True)
    axes.legend()
    return drawn
