"""`bench sweep`: `bench serve` at each of some rates, or concurrencies."""
import html
import json
import os
import signal
import sys
import tempfile

from bench import charts, groups
from bench.ends import BY_SIGNAL, CLIENT_ERROR, USAGE, Failure, say, write
from bench.flags import Flags, numbers
from bench.records import load
from bench.report import failures_text, json_text
from bench.text import table


def rates(text):
    return [float(part) for part in text.split(",")]


rates.__name__ = "list of numbers"  # what argparse calls it


def run(program, args):
    flags = Flags("sweep", "[FLAGS]",
                  "Measures a running server at several request rates or concurrencies: prints a table and, with --result-dir,\n"
                  "draws throughput against the speed that one user sees. Also takes the flags of 'bench serve'.",
                  ["bulkhead bench sweep --max-concurrency 1,2,4,8,16 --num-prompts 200",
                   "bulkhead bench sweep --request-rate 1,2,4,8 --goodput ttft:500 --result-dir sweep"])
    flags.add_argument("--request-rate", metavar="LIST", type=rates, default=[],
                       help="mean numbers of requests per second, one for each point")
    flags.add_argument("--max-concurrency", metavar="LIST", type=numbers, default=[],
                       help="maximum numbers of requests in flight, one for each point")
    flags.add_argument("--result-dir", metavar="DIR",
                       help="folder for sweep.json, sweep.html and the results of each point")
    flags.add_argument("--save-result", action="store_true", help="the same as --result-dir .")
    flags.add_argument("--allow-failures", action="store_true", help="exit with code 0 even if requests failed")
    options, rest = flags.split(args)
    if bool(options.request_rate) == bool(options.max_concurrency):
        raise Failure("give the points of the sweep: either --request-rate 1,2,4 or --max-concurrency 1,2,4", USAGE)
    if any(word.partition("=")[0] == "--ramp-up-strategy" for word in rest) or "trace" in rest:
        raise Failure("a ramp or a trace has its own times and cannot be swept; use 'bench serve'", USAGE)
    settings = [(f"rate {rate:g}", ["--request-rate", repr(rate)]) for rate in options.request_rate]
    settings += [(f"concurrency {n}", ["--max-concurrency", str(n)]) for n in options.max_concurrency]
    folder = options.result_dir or ("." if options.save_result else None)
    with tempfile.TemporaryDirectory() as scratch:
        points, ended_by, failure = measure_all(program, settings, folder or scratch, rest)
    find_frontier(points)
    say(sweep_table(points))
    if folder:
        _save(folder, points)
    if ended_by:
        raise Failure("stopped by a signal; the table is of what had been measured", BY_SIGNAL + ended_by)
    if failure and not options.allow_failures:
        raise Failure(failure, CLIENT_ERROR)
    return 0


def measure_all(program, settings, folder, args):
    """Points, the signal that ended them (0: none), and how the first requests failed (None: none did)."""
    points, failure, ended_by = [], None, 0
    for name, flags in settings:
        if not {"--no-progress", "--disable-tqdm"} & set(args):
            print(name, file=sys.stderr)
        place = os.path.join(folder, name.replace(" ", "-"))
        end = groups.run([program, "bench", "serve", *args, *flags, "--allow-failures", "--result-dir", place],
                         errors=None)
        if end.exit_code - BY_SIGNAL in (signal.SIGINT, signal.SIGTERM):
            ended_by = end.exit_code - BY_SIGNAL
        elif end.exit_code != 0:
            raise SystemExit(end.exit_code)  # it has said why
        try:
            with open(os.path.join(place, "result.json"), encoding="utf-8") as f:
                result = json.load(f)
        except FileNotFoundError:
            break  # a signal came before anything had begun
        if result["failed"] and failure is None:
            failure = failures_text(result, load(place)[1])
        if ended_by and result["completed"] + result["failed"] == 0:
            break  # there is nothing to tell
        points.append(point_of(name, result))
        if ended_by or result["x_bulkhead"]["interrupted"]:
            break
    return points, ended_by, failure


def point_of(name, result):
    """Throughput of all, and what a user sees while it writes, 1 / mean TPOT; 0 where no answer had two tokens."""
    tpot = result["x_bulkhead"]["latencies"]["tpot_ms"]
    return {"name": name, "tokens_per_s": result["output_throughput"],
            "tokens_per_s_per_user": 1e3 / tpot["mean"]["value"] if tpot["count"] and tpot["mean"]["value"] > 0 else 0,
            "on_frontier": False, "result": result}


def find_frontier(points):
    """Marks the points that no other is better than in both. One that was stopped early, or of which no more requests
    completed than failed, is not on it, and takes no other from it: its figures are not those of its load."""
    measured = [p for p in points if p["result"]["completed"] > p["result"]["failed"]
                and not p["result"]["x_bulkhead"]["interrupted"]]
    figures = [(p["tokens_per_s"], p["tokens_per_s_per_user"]) for p in measured]
    for point, mine in zip(measured, figures):
        point["on_frontier"] = not any(all(a >= b for a, b in zip(other, mine)) and other != mine for other in figures)


def _rows(points):
    def cell(values, key, digits):
        return f"{values[key]['value']:.{digits}f}" if key in values else "-"

    rows = [["", "req/s", "tok/s", "tok/s per user", "TTFT mean ms", "TTFT P99 ms", "TPOT mean ms", "E2EL mean ms",
             "good req/s", "failed", "KV peak", "frontier", "valid"]]
    for point in points:
        result, ours = point["result"], point["result"]["x_bulkhead"]
        values, memory, good = ours["latencies"], ours.get("memory", {}), result["request_goodput"]
        exact = "" if memory.get("kv_blocks_used_peak_is_exact") else ">= "
        rows.append([
            point["name"], f"{result['request_throughput']:.2f}", f"{point['tokens_per_s']:.1f}",
            f"{point['tokens_per_s_per_user']:.1f}" if point["tokens_per_s_per_user"] > 0 else "-",
            cell(values["ttft_ms"], "mean", 2), cell(values["ttft_ms"], "p99", 1), cell(values["tpot_ms"], "mean", 2),
            cell(values["e2el_ms"], "mean", 2), "-" if good is None else f"{good:.2f}", str(result["failed"]),
            f"{exact}{100 * memory['kv_blocks_used_peak'] / memory['kv_blocks']:.0f} %" if memory.get("kv_blocks") else "-",
            "*" if point["on_frontier"] else "", "yes" if not ours["why_invalid"] else "no"])
    return rows


def _doubts(points):
    return [f"{point['name']} is invalid: {why}" for point in points for why in point["result"]["x_bulkhead"]["why_invalid"]]


def sweep_table(points):
    return "".join([table(_rows(points)), *(doubt + "\n" for doubt in _doubts(points))])


def sweep_page(points):
    """Needs matplotlib."""
    by_user = sorted(points, key=lambda p: p["tokens_per_s_per_user"])
    groups_of = {"Pareto frontier": [p for p in by_user if p["on_frontier"]],
                 ".beaten in both": [p for p in by_user if not p["on_frontier"]]}
    frontier, axes = charts.lines("Throughput against what one user sees", "tokens/s of a user", "tokens/s of all", {
        name: ([p["tokens_per_s_per_user"] for p in some], [p["tokens_per_s"] for p in some])
        for name, some in groups_of.items()})
    load_curve, load_axes = charts.lines("Time to first token against load", "completed requests/s", "mean TTFT, ms",
                                         {"": _ttft_against_load(points)})
    for point, x, y in zip(points, *_ttft_against_load(points)):
        load_axes.annotate(point["name"], (x, y))
        axes.annotate(point["name"], (point["tokens_per_s_per_user"], point["tokens_per_s"]))
    invalid = "".join(f"<p class=\"bad\">{html.escape(doubt)}</p>\n" for doubt in _doubts(points))
    return charts.page("bench sweep: " + (points[0]["result"]["model_id"] if points else ""),
                       "<div class=\"charts\">\n" + charts.svg(frontier) + charts.svg(load_curve)
                       + "</div>\n<h2>Points</h2>\n" + charts.html_table(_rows(points)) + invalid)


def _ttft_against_load(points):
    ttft = [p["result"]["x_bulkhead"]["latencies"]["ttft_ms"].get("mean", {"value": 0})["value"] for p in points]
    return [p["result"]["request_throughput"] for p in points], ttft


def _save(folder, points):
    write(os.path.join(folder, "sweep.json"), json_text({"bench": "sweep", "points": points}))
    if charts.library() is None:
        say(f"wrote sweep.json and a folder for each point into {folder}; sweep.html needs matplotlib (apt install "
            "python3-matplotlib)\n")
        return
    write(os.path.join(folder, "sweep.html"), sweep_page(points))
    say(f"wrote sweep.json, sweep.html and a folder for each point into {folder}\n")
