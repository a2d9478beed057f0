#!/usr/bin/env python3
"""Measures the same work in Bulkhead and in other engines, in turns within the same minutes, and prints a table.

    scripts/peers/compare.py --model S --formats bf16,int8 \\
        --peer vllm=/opt/vllm/bin/python3  --weights vllm:bf16=S \\
        --peer ik_llama=/opt/ik_llama.cpp/build/bin  --weights ik_llama:bf16=S-bf16.gguf --weights ik_llama:int8=S-q8_0.gguf

Nothing is built or installed: --peer gives the place of an engine (the Python of an environment with vllm or
openvino_genai, or the folder of llama-batched-bench), --weights the checkpoint or file that it reads for a format.
Each round runs every engine once in every format. Decode is measured with --batch-size sequences after --context
tokens each, prefill with one prompt of each --input-len. Figures are medians over the rounds, in tokens/s; a ratio is
Bulkhead's figure divided by that of the best other engine.
Standard library only. docs/benchmarking.md says how to make the files.
"""
import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUR_DTYPES = {"bf16": ["--weight-dtype", "auto"], "int8": ["--weight-dtype", "int8"],
              "int4": ["--weight-dtype", "int4"]}
PYTHON_PEERS = {"vllm": "vllm_engine.py", "openvino": "openvino_engine.py"}
LLAMA_PEERS = ("llama_cpp", "ik_llama")
# Tokens generated behind a prompt whose prefill alone is wanted.
PREFILL_OUTPUT_LEN = 2


class EngineError(Exception):
    pass


def numbers(text):
    values = [int(x) for x in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="checkpoint folder for Bulkhead")
    parser.add_argument("--bulkhead", default=os.path.join(ROOT, "build/release/bin/bulkhead"),
                        help="path of the program (default build/release/bin/bulkhead)")
    parser.add_argument("--flag", action="append", default=[], help="further flag for bulkhead, as --flag=--activation-dtype=bf16")
    parser.add_argument("--formats", default="bf16", help="number formats, separated by commas: bf16, int8, int4 (default bf16)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=WHERE",
                        help=f"engine, one of {', '.join((*PYTHON_PEERS, *LLAMA_PEERS))}, and its place")
    parser.add_argument("--weights", action="append", default=[], metavar="NAME:FORMAT=PATH",
                        help="weights of engine NAME in FORMAT")
    parser.add_argument("--batch-size", type=numbers, default=[1, 8, 16, 64],
                        help="numbers of sequences in the decode (default 1,8,16,64)")
    parser.add_argument("--input-len", type=numbers, default=[128, 512, 2048],
                        help="numbers of tokens of the prompt in the prefill (default 128,512,2048)")
    parser.add_argument("--context", type=int, default=128, help="number of tokens of each sequence before the decode (default 128)")
    parser.add_argument("--output-len", type=int, default=32, help="number of tokens to decode for each sequence (default 32)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each engine (default: one for each CPU)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default 3)")
    parser.add_argument("--timeout", type=int, default=1800, help="time limit in seconds for one engine in one round and format (default 1800)")
    parser.add_argument("--out", help="file for the raw figures as JSON, written after each engine")
    args = parser.parse_args(argv)
    args.formats = args.formats.split(",")
    for name in args.formats:
        if name not in OUR_DTYPES:
            parser.error(f"--formats {name}: use {', '.join(OUR_DTYPES)}")
    if min(args.context, args.output_len - 1, args.threads, args.rounds) < 1:
        parser.error("--context, --threads and --rounds are at least 1, --output-len at least 2")
    args.peers, args.paths = {}, {}
    for text in args.peer:
        name, _, where = text.partition("=")
        if name not in PYTHON_PEERS and name not in LLAMA_PEERS or not os.path.exists(where):
            parser.error(f"--peer {text}: give {', '.join((*PYTHON_PEERS, *LLAMA_PEERS))}, and a path that exists")
        args.peers[name] = where
    for text in args.weights:
        key, _, path = text.partition("=")
        name, _, kind = key.partition(":")
        if name not in args.peers or kind not in OUR_DTYPES or not os.path.exists(path):
            parser.error(f"--weights {text}: give PEER:FORMAT=PATH of a --peer, and a path that exists")
        args.paths[name, kind] = path
    return args


def output_of(command, timeout_s, errors_too=False):
    """Standard output, and standard error behind it if wanted; the last lines of that where it fails."""
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{command[0]} took more than {timeout_s} s") from None
        if done.returncode != 0:
            errors.seek(0)
            tail = " / ".join(errors.read().strip().splitlines()[-3:])
            raise EngineError(f"{command[0]} ended with {done.returncode}: {tail}")
        errors.seek(0)
        return done.stdout + errors.read() if errors_too else done.stdout


def run_bulkhead(args, kind):
    def bench(batches, inputs, outputs):
        text = output_of([args.bulkhead, "bench", "throughput", "--model", args.model, *OUR_DTYPES[kind], *args.flag,
                          "--threads", str(args.threads), "--batch-size", ",".join(map(str, batches)), "--input-len",
                          ",".join(map(str, inputs)), "--output-len", str(outputs), "--repeats", "1", "--json"], args.timeout)
        return json.loads(text)["cases"]

    figures = {f"decode {c['batch_size']}": c["decode_tokens_per_s"]
               for c in bench(args.batch_size, [args.context], args.output_len)}
    for case in bench([1], args.input_len, PREFILL_OUTPUT_LEN):
        figures[f"prefill {case['input_len']}"] = case["prefill_tokens_per_s"]
    return figures


def run_llama(args, name, kind):
    """llama-batched-bench: its table, which ik_llama.cpp's writes as an error, has PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG."""
    def bench(batches, inputs, outputs):
        cells = max(batches) * (max(inputs) + outputs)
        text = output_of([os.path.join(args.peers[name], "llama-batched-bench"), "-m", args.paths[name, kind], "-t",
                          str(args.threads), "-c", str(cells), "-b", "2048", "-ub", "512", "-fa", "on",
                          *(["-rtr"] if name == "ik_llama" and kind != "bf16" else []), "-npp", ",".join(map(str, inputs)), "-ntg",
                          str(outputs), "-npl", ",".join(map(str, batches))], args.timeout, errors_too=True)
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
                for line in text.splitlines() if line.startswith("|")]
        found = [(int(r[0]), int(r[2]), float(r[5]), float(r[7])) for r in rows if len(r) >= 8 and r[0].isdigit()]
        if not found:
            raise EngineError("llama-batched-bench printed no row of its table")
        return found

    figures = {f"decode {batch}": decode for _, batch, _, decode in bench(args.batch_size, [args.context], args.output_len)}
    for inputs, _, prefill, _ in bench([1], args.input_len, PREFILL_OUTPUT_LEN):
        figures[f"prefill {inputs}"] = prefill
    return figures


def run_python(args, name, kind):
    work = {"model": args.paths[name, kind], "threads": args.threads, "batch_size": args.batch_size, "context": args.context,
            "output_len": args.output_len, "input_len": args.input_len}
    text = output_of([args.peers[name], os.path.join(HERE, PYTHON_PEERS[name]), json.dumps(work)], args.timeout)
    return json.loads(text.strip().splitlines()[-1])


def measure(args, figures, versions, keep):
    """Fills in {(format, engine): {case: [tokens/s of each round]}}, and calls keep() after each engine."""
    for round_index in range(args.rounds):
        for kind in args.formats:
            engines = ["bulkhead", *(name for name in args.peers if (name, kind) in args.paths)]
            for name in engines[round_index % len(engines):] + engines[:round_index % len(engines)]:
                print(f"round {round_index + 1} of {args.rounds}: {kind}, {name}", file=sys.stderr, flush=True)
                try:
                    if name == "bulkhead":
                        found = run_bulkhead(args, kind)
                    elif name in LLAMA_PEERS:
                        found = run_llama(args, name, kind)
                    else:
                        found = run_python(args, name, kind)
                        versions[name] = found.pop("version", None)
                except (EngineError, ValueError, KeyError, IndexError, OSError) as error:
                    print(f"  {name} in {kind}: {error}", file=sys.stderr, flush=True)
                    continue
                for case, rate in found.items():
                    figures.setdefault((kind, name), {}).setdefault(case, []).append(rate)
                keep()


def cpu_name():
    name, flags = platform.processor(), []
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    name = value.strip()
                if key.strip() == "flags":
                    words = value.split()
                    flags = [w for w in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if w in words]
    except OSError:
        pass
    return f"{name} ({', '.join(flags)})"


def table_of(args, figures):
    cases = [f"prefill {n}" for n in args.input_len] + [f"decode {n}" for n in args.batch_size]
    lines = []
    for kind in args.formats:
        names = [name for name in ("bulkhead", *args.peers) if (kind, name) in figures]
        lines += [f"| {kind}, tokens/s | {' | '.join([*names, 'ours / best'])} |", "|---" * (len(names) + 2) + "|"]
        for case in cases:
            rates = {name: statistics.median(figures[kind, name][case]) for name in names if figures[kind, name].get(case)}
            peers = [rate for name, rate in rates.items() if name != "bulkhead"]
            ratio = f"{rates['bulkhead'] / max(peers):.2f}" if peers and "bulkhead" in rates else "-"
            cells = [f"{rates[name]:,.0f}" if rates.get(name, 0) >= 100 else f"{rates[name]:.1f}" if name in rates else "-"
                     for name in names]
            lines.append(f"| {case} | {' | '.join([*cells, ratio])} |")
        lines.append("")
    return "\n".join(lines)


def main(argv):
    args = parse(argv)
    figures, versions = {}, {}
    versions["bulkhead"] = output_of([args.bulkhead, "--version"], 60).strip().splitlines()[0]

    def keep():
        if args.out:
            with open(args.out, "w", encoding="utf-8") as f:
                json.dump({"cpu": cpu_name(), "command": argv, "versions": versions,
                           "figures": [{"format": kind, "engine": name, "cases": cases}
                                       for (kind, name), cases in figures.items()]}, f, indent=1)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    whole = True
    try:
        measure(args, figures, versions, keep)
    except KeyboardInterrupt:
        whole = False
        print("interrupted: the table has what was measured until now", file=sys.stderr)
    print(f"{cpu_name()}, {args.threads} threads, medians of {args.rounds} rounds; decode behind {args.context} tokens\n")
    print(table_of(args, figures))
    for name, version in versions.items():
        print(f"{name}: {version}")
    complete = all((kind, "bulkhead") in figures for kind in args.formats) and all(key[::-1] in figures for key in args.paths
                                                                                   if key[1] in args.formats)
    return 0 if whole and complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
