"""`bench throughput`: medians over the runs that the program measured, as a table and as JSON."""
import json
import sys

from bench.ends import say, write
from bench.estimates import median, quantile
from bench.flags import Flags
from bench.ranks import ranks_json, ranks_table
from bench.report import json_text
from bench.text import table

RATES = ("prefill_tokens_per_s", "decode_tokens_per_s", "total_tokens_per_s")


def run(_program, args):
    flags = Flags("throughput", "", "")
    flags.add_argument("--json", action="store_true")
    flags.add_argument("--out")
    options = flags.parse(args)
    measured = json.load(sys.stdin)
    text = json_text(throughput_json(measured))
    say(text if options.json else throughput_table(measured))
    if options.out is not None:
        write(options.out, text, "--out")
    return 0


def _column(case, rate):
    """Of each run that has it."""
    return [run[rate] for run in case["runs"] if run[rate] is not None]


def _pooled_ms(case, name):
    """Of all runs, ascending."""
    return sorted(1e3 * s for run in case["runs"] for s in run[name])


def throughput_json(measured):
    """`measured`: as the program writes it."""
    def latency(values):
        return {"count": len(values), "p50_ms": quantile(values, 0.5), "p99_ms": quantile(values, 0.99)}

    cases = [{**{key: case[key] for key in ("batch_size", "input_len", "output_len")},
              **{rate: median(_column(case, rate)) for rate in RATES},
              "first_token": latency(_pooled_ms(case, "first_token_s")), "step": latency(_pooled_ms(case, "step_s")),
              "runs": [{rate: run[rate] for rate in RATES} for run in case["runs"]]} for case in measured["cases"]]
    rest = {key: value for key, value in measured.items() if key not in ("ranks", "cases")}
    return {**rest, "group": ranks_json(measured["ranks"]), "cases": cases}


def throughput_table(measured):
    def with_range(values):
        return f"{median(values):.1f} ({min(values):.1f} - {max(values):.1f})" if values else "-"

    rows = [["batch", "input", "output", "prefill tokens/s", "decode tokens/s", "total tokens/s", "first token ms p50",
             "p99", "step ms p50", "p99"]]
    for case in measured["cases"]:
        latencies = [f"{quantile(values, share):.2f}" if values else "-"
                     for values in (_pooled_ms(case, "first_token_s"), _pooled_ms(case, "step_s"))
                     for share in (0.5, 0.99)]
        rows.append([*(str(case[key]) for key in ("batch_size", "input_len", "output_len")),
                     *(with_range(_column(case, rate)) for rate in RATES), *latencies])
    return table(rows) + "\n" + ranks_table(measured["ranks"])
