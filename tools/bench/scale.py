"""`bench scale`: what more ranks bring, planned and measured."""
import argparse
import datetime
import json
import re

from bench import groups
from bench.ends import BUG, DOES_NOT_FIT, Failure, say, write
from bench.flags import Flags, numbers
from bench.report import json_text
from bench.text import percent, placement, table

SHOWN = 200  # characters


def run(program, args):
    flags = Flags("scale", "[--model] DIR [FLAGS]",
                  "Starts groups of several sizes, one after the other, and compares the plan of each ('plan') with what\n"
                  "'bench throughput' measures: tokens/s, efficiency, the share of sums and gathers in the time, KV tokens, and\n"
                  "the rank and category that limit memory. Run it without mpirun. Also takes the flags of 'bench throughput'.",
                  ["bulkhead bench scale --model DIR --tp 1,2 --batch-size 8 --device-memory 4GiB",
                   "bulkhead bench scale --model DIR --tp 2,4,8 --hosts a,b --cache-max-entry-count 0.8",
                   "bulkhead bench scale --model DIR --launcher 'srun --mpi=pmix'"])
    groups.add_flags(flags, [1, 2, 4, 8])
    flags.add_argument("--out", metavar="FILE", help="also write the JSON to this file")
    options, rest = flags.split(args)
    launch = groups.launch_of(options, rest)
    throughput_args, plan_args = share_out(rest)
    if options.out is not None:
        write(options.out, "", "--out")
    rows = [_measure(program, launch, ranks, throughput_args, plan_args) for ranks in options.tp]
    text = json_text(scale_json(rows, *facts_of(program, plan_args)))
    say(text if options.json else scale_table(rows))
    if options.out is not None:
        write(options.out, text, "--out")
    return 0


def share_out(args):
    """What `bench throughput` and `plan` are called with, but for the size: `plan` knows nothing of what is measured,
    and has the limits that it comes to, unless `args` have others."""
    flags = Flags("throughput", "", "")
    for name, default in (("--batch-size", [1, 8, 16]), ("--input-len", [128]), ("--output-len", [64])):
        flags.add_argument(name, type=numbers, default=default)
    for name in ("--shared-prefix-len", "--repeats"):
        flags.add_argument(name, help=argparse.SUPPRESS)
    measured, engine = flags.split(args)
    longest = max(2, max(measured.input_len) + measured.output_len[0])
    return args, ["--max-num-seqs", str(max(measured.batch_size)), "--max-model-len", str(longest), *engine]


def facts_of(program, plan_args):
    """Version, and the model as given: by a flag, without one, by the environment or by a file."""
    version, config = (groups.run([program, *words]) for words in (["--version"], ["plan", *plan_args, "--print-config"]))
    found = re.search(r'^model = (".*?[^\\]") +#', config.out, re.MULTILINE)
    return version.out.split("\n")[0].partition(" ")[2], json.loads(found[1]) if found else ""


def _measure(program, launch, ranks, throughput_args, plan_args):
    """A size that does not fit is a row without a measurement."""
    size = ["--tensor-parallel-size", str(ranks), "--json"]
    end = groups.run_group(launch, 1, [program, "plan", *plan_args, *size])
    if end.exit_code != DOES_NOT_FIT:
        groups.check(f"the plan for --tp {ranks}", end)
    planned = parsed("plan", end.out, capacity_of)
    if end.exit_code == DOES_NOT_FIT:
        return {"tensor_parallel_size": ranks, "planned": planned, "measured": None}
    end = groups.run_group(launch, ranks, [program, "bench", "throughput", *throughput_args, *size])
    groups.check(groups.name(launch, ranks), end)
    return {"tensor_parallel_size": ranks, "planned": planned, **parsed("bench throughput", end.out, measured_of)}


def parsed(what, text, read):
    """`read` of the JSON that a child printed."""
    try:
        return read(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Failure(f"{what} printed something else than its JSON: '{text[:SHOWN]}'", BUG) from error


def capacity_of(report):
    """What holds the group's KV cache down."""
    return {"fits": report["fits"], "kv_tokens": report["kv_tokens"],
            "binding": {"rank": report["binding"]["rank"], "term": report["binding"]["term"]}}


def measured_of(result):
    """From what `bench throughput --json` prints."""
    group, decode = result["group"], result["group"]["decode"]
    return {"measured": {
        **capacity_of(result["memory"]["report"]), "threads": result["threads"],
        "decode_comm_share": decode["comm_share"], "prefill_comm_share": group["prefill"]["comm_share"],
        "slowest_rank": decode["slowest_rank"], "hosts": [rank["host"] for rank in group["ranks"]],
        "slowest_excess": decode["slowest_excess"],
        "cases": [{key: case[key] for key in ("batch_size", "input_len", "prefill_tokens_per_s", "decode_tokens_per_s")}
                  for case in result["cases"]]}}


def _gain(row, base, i, kind):
    """Speed over the first measured row's, and that over the growth in threads of all ranks."""
    rate, base_rate = (one["measured"]["cases"][i][f"{kind}_tokens_per_s"] for one in (row, base))
    threads, base_threads = (one["tensor_parallel_size"] * one["measured"]["threads"] for one in (row, base))
    speedup = rate / base_rate if base_rate > 0 else 0
    return speedup, speedup / (threads / base_threads)


def _base(rows):
    return next((row for row in rows if row["measured"]), None)


def scale_json(rows, version, model):
    base, sizes = _base(rows), []
    for row in rows:
        measured = row["measured"]
        if measured:
            cases = []
            for i, case in enumerate(measured["cases"]):
                prefill, decode = _gain(row, base, i, "prefill"), _gain(row, base, i, "decode")
                cases.append({**case, "prefill_speedup": prefill[0], "prefill_efficiency": prefill[1],
                              "decode_speedup": decode[0], "decode_efficiency": decode[1]})
            measured = {**measured, "cases": cases}
        sizes.append({"tensor_parallel_size": row["tensor_parallel_size"], "planned": row["planned"],
                      "measured": measured})
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"bench": "scale", "version": version, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "model": model,
            "sizes": sizes}


def scale_table(rows):
    def capacity(one):
        return [f"{one['kv_tokens']:,}" if one["fits"] else "does not fit",
                f"rank {one['binding']['rank']}, {one['binding']['term']}"]

    text = [["ranks", "KV tokens planned", "bottleneck", "KV tokens measured", "bottleneck", "comm in decode", "in prefill",
             "slowest rank", "where"]]
    for row in rows:
        measured = row["measured"]
        text.append([str(row["tensor_parallel_size"]), *capacity(row["planned"]), *(
            [*capacity(measured), percent(measured["decode_comm_share"]), percent(measured["prefill_comm_share"]),
             f"{measured['slowest_rank']}, +{percent(measured['slowest_excess'])}", placement(measured["hosts"])]
            if measured else ["-"] * 6)])
    if not _base(rows):
        return table(text)
    return _rates_table(rows) + "efficiency: speed-up over the growth in threads of all ranks\n\n" + table(text)


def _rates_table(rows):
    base = _base(rows)
    text = [["ranks", "threads", "batch", "input", "prefill tokens/s", "speed-up", "efficiency", "decode tokens/s",
             "speed-up", "efficiency"]]
    for i, of_base in enumerate(base["measured"]["cases"]):
        for row in filter(lambda row: row["measured"], rows):
            cells = [row["tensor_parallel_size"], row["measured"]["threads"], of_base["batch_size"], of_base["input_len"]]
            for kind in ("prefill", "decode"):
                rate = row["measured"]["cases"][i][f"{kind}_tokens_per_s"]
                speedup, efficiency = _gain(row, base, i, kind)
                cells += [f"{rate:.1f}", f"{speedup:.2f}x", percent(efficiency)] if rate > 0 else ["-"] * 3
            text.append(list(map(str, cells)))
    return table(text)
