"""`bench compare`: whether one result is better than another, or whether it cannot be decided."""
import json
import os

from bench.ends import CLIENT_ERROR, USAGE, Failure, say
from bench.estimates import difference
from bench.flags import Flags
from bench.report import json_text
from bench.text import table

# A difference counts beyond this many half intervals: with a dozen metrics one in twenty would cry wolf in every other
# comparison; beyond one and a half it is one in three hundred.
COUNTS = 1.5
MOST_FIGURE = 1e12
# Beyond this share of failures the latencies, which are of the other requests, mislead.
MOST_FAILED_SHARE = 0.01
SHOWN = 60  # characters

SAME, BETTER, WORSE, MIXED, UNKNOWN = "no difference shown", "better", "worse", "mixed", "cannot tell"

# Name, keys of its estimate, the same of each run or its mean, whether less is better.
METRICS = (
    ("request throughput (req/s)", ("throughput", "requests_per_s"), "request_throughput", False),
    ("output throughput (tok/s)", ("throughput", "output_tokens_per_s"), "output_throughput", False),
    ("mean TTFT (ms)", ("latencies", "ttft_ms", "mean"), "mean_ttft_ms", True),
    ("median TTFT (ms)", ("latencies", "ttft_ms", "median"), "mean_ttft_ms", True),
    ("P99 TTFT (ms)", ("latencies", "ttft_ms", "p99"), "mean_ttft_ms", True),
    ("mean TPOT (ms)", ("latencies", "tpot_ms", "mean"), "mean_tpot_ms", True),
    ("mean ITL (ms)", ("latencies", "itl_ms", "mean"), "mean_tpot_ms", True),
    ("P99 ITL (ms)", ("latencies", "itl_ms", "p99"), "mean_tpot_ms", True),
    ("mean E2EL (ms)", ("latencies", "e2el_ms", "mean"), "mean_e2el_ms", True),
    ("P99 E2EL (ms)", ("latencies", "e2el_ms", "p99"), "mean_e2el_ms", True),
)


def run(_program, args):
    flags = Flags("compare", "BEFORE AFTER [--json] [--any-workload]",
                  "Compares two results of 'bench serve': the second one is better or worse, or the confidence intervals\n"
                  "leave it open. The exit code is 1 if it is worse, or if one of the results cannot be trusted.",
                  ["bulkhead bench compare before/result.json after/result.json"])
    flags.add_argument("files", metavar="FILE", nargs="*", help="two files result.json: before and after")
    flags.add_argument("--json", action="store_true", help="print JSON instead of a table")
    flags.add_argument("--any-workload", action="store_true", help="compare even if the results are of different workloads")
    options = flags.parse(args)
    if len(options.files) != 2:
        raise Failure(f"compare needs two result.json, and {len(options.files)} were given; write 'bulkhead bench "
                      "compare BEFORE AFTER'", USAGE)
    before, after = options.files
    comparison = compare(_read(before), _read(after), options.any_workload)
    verdict = comparison["verdict"]
    say(json_text(comparison) if options.json else comparison_text(comparison))
    if comparison["doubts"]:
        raise Failure("the figures are not to be trusted: " + comparison["doubts"][0], CLIENT_ERROR)
    if verdict in (WORSE, MIXED):
        raise Failure(f"{after} is worse than {before}"
                      + (" in some metrics and better in others" if verdict == MIXED else ""), CLIENT_ERROR)
    return 0


def _read(path):
    if os.path.isdir(path):
        raise Failure(f"{path} is a directory; name its result.json", USAGE)
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", USAGE) from error


def compare(before, after, any_workload):
    """`before`, `after`: the texts of two result.json."""
    first, second = _parse(before, "first"), _parse(after, "second")
    ours_first, ours_second = first["x_bulkhead"], second["x_bulkhead"]
    workload = _differences(ours_first["workload"], ours_second["workload"])
    if workload and not any_workload:
        raise Failure(f"the two were measured under other loads ({workload[0]}); measure both with the same flags, or "
                      "say --any-workload", USAGE)
    metrics, not_compared = [], []
    one_run_each = len(_runs(ours_first)) < 2 and len(_runs(ours_second)) < 2
    for name, keys, of_runs, less_is_better in METRICS:
        a, b = (_estimate(ours, keys, name, of_runs, which)
                for ours, which in ((ours_first, "first"), (ours_second, "second")))
        if a and b:
            metrics.append({"name": name, "before": a, "after": b,
                            "verdict": _verdict(a, b, less_is_better, one_run_each)})
        elif a or b:
            not_compared.append(f"{name}: the {'second' if a else 'first'} result does not have it")
    if not metrics:
        raise Failure("the two results have no metric in common: there is nothing to compare", USAGE)
    verdicts = {metric["verdict"] for metric in metrics}
    return {"verdict": (UNKNOWN if UNKNOWN in verdicts else MIXED if {BETTER, WORSE} <= verdicts
                        else WORSE if WORSE in verdicts else BETTER if BETTER in verdicts else SAME),
            "metrics": [{**m, **{side: [m[side][k] for k in ("value", "low", "high")] for side in ("before", "after")}}
                        for m in metrics],
            "not_compared": not_compared,
            "differences": _differences(ours_first.get("server"), ours_second.get("server")) + workload,
            "doubts": _doubts(first, "first") + _doubts(second, "second")}


def _parse(text, which):
    """What `bench serve` wrote: {"completed", "failed", "x_bulkhead": {"format", "workload", ...}}."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    ours = whole.get("x_bulkhead") if isinstance(whole, dict) else None
    if not isinstance(ours, dict):
        wrong = "it has no x_bulkhead"
    elif ours.get("format") != 1:
        wrong = "its format is not 1"
    elif not isinstance(ours.get("workload"), dict):
        wrong = "its workload is missing or no object"
    elif not all(type(whole.get(key)) is int and _is_figure(whole[key]) for key in ("completed", "failed")):
        wrong = "its numbers of completed and failed requests are missing or no whole numbers"
    else:
        return whole
    raise Failure(f"the {which} file is no result.json of 'bulkhead bench serve --result-dir': {wrong}", USAGE)


def _short(value):
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."


def _is_figure(value):
    """One that a measurement can have: of one that is not, no verdict would mean anything."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST_FIGURE


def _runs(ours):
    runs = ours.get("runs")
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []


def _estimate(ours, keys, name, of_runs, which):
    """None where the result does not have the metric. Runs that lie further apart than one run's own interval says
    tell more of the uncertainty; what is not known of each run (a median) moves as the mean of the same does."""
    value = ours
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return None
    if not isinstance(value, dict) or not all(_is_figure(value.get(key)) for key in ("value", "low", "high")):
        raise Failure(f"the {which} file's {name} is {_short(value)}: value, low and high must be numbers from 0 to "
                      f"{MOST_FIGURE:g}", USAGE)
    if value["low"] > value["high"]:
        raise Failure(f"the {which} file's {name} has low {value['low']:g} above high {value['high']:g}", USAGE)
    figures = [run[of_runs] for run in _runs(ours) if of_runs in run]
    for figure in figures:
        if not _is_figure(figure):
            raise Failure(f"the {which} file's runs have {of_runs} {_short(figure)}: not from 0 to {MOST_FIGURE:g}",
                          USAGE)
    mean = sum(figures) / len(figures) if figures else 0
    moved = [value["value"] * figure / mean for figure in figures] if mean else []
    return {"value": value["value"], "low": min([value["low"], *moved]), "high": max([value["high"], *moved])}


def _verdict(before, after, less_is_better, one_run_each):
    by = difference(before, after)
    if abs(by) <= COUNTS:
        return SAME
    if one_run_each:
        return UNKNOWN
    return BETTER if (by < 0) == less_is_better else WORSE


def _differences(before, after):
    """Each key whose values differ, as "key: before -> after"; null stands for a key that is not there."""
    before, after = (side if isinstance(side, dict) else {} for side in (before, after))
    keys = sorted({*before, *after} - {"epoch", "provenance", "repeats", "num_warmups"})
    return [f"{key}: {json.dumps(before.get(key))} -> {json.dumps(after.get(key))}" for key in keys
            if before.get(key) != after.get(key)]


def _doubts(whole, which):
    """Why the figures are not to be trusted; empty: they are."""
    ours, completed, failed = whole["x_bulkhead"], whole["completed"], whole["failed"]
    reasons = ours.get("why_invalid", [])
    doubts = [f"the {which} result is marked invalid: {reason if isinstance(reason, str) else _short(reason)}"
              for reason in (reasons if isinstance(reasons, list) else [reasons])]
    if ours.get("interrupted", False) is not False:
        doubts.append(f"the {which} measurement was stopped early")
    if completed == 0:
        doubts.append(f"no request of the {which} measurement completed")
    elif failed > MOST_FAILED_SHARE * (failed + completed):
        doubts.append(f"{failed} of {failed + completed} requests of the {which} measurement failed: its latencies are "
                      "of the others alone")
    return doubts


def comparison_text(comparison):
    def change(before, after):
        if before == 0:
            return "-"  # there is no base to compare with
        text = f"{100 * (after - before) / before:+.1f} %"
        return "+0.0 %" if text == "-0.0 %" else text

    rows = [["", "before", "after", "change", "verdict"]]
    for metric in comparison["metrics"]:
        cells = [f"{value:.2f} [{low:.2f} - {high:.2f}]" for value, low, high in (metric["before"], metric["after"])]
        rows.append([metric["name"], *cells, change(metric["before"][0], metric["after"][0]), metric["verdict"]])
    lines = [f"differs: {line}" for line in comparison["differences"]]
    lines += [f"not compared: {line}" for line in comparison["not_compared"]]
    lines += [f"DOUBT: {line}" for line in comparison["doubts"]]
    lines.append("verdict: " + comparison["verdict"])
    if comparison["verdict"] == UNKNOWN:
        lines[-1] += (": one run each, whose intervals do not contain what moves between runs; measure with --repeats 3 "
                      "or more")
    return table(rows) + "\n".join(lines) + "\n"
