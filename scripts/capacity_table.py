#!/usr/bin/python3
"""Write docs/capacity.md: what `bulkhead plan` says of published models: capacity_table.py BULKHEAD [--check]"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/capacity.md")
SIZES = (1, 2, 4, 8, 16, 32)
HEAD = """# Capacity of published models

What `bulkhead plan` says of each `config.json` in `tests/data/configs/` (some fields of the published file that change no size are left
out), in bfloat16 with a bfloat16 KV cache and 80 GB (`--device-memory 74GiB`) for each rank; written by `scripts/capacity_table.py`.
Weights are as Bulkhead holds them: routers of experts in float32. *KV bytes* are of one token more, in a sequence longer than any
window, on one rank of 8, and *state* is of one sequence there, with its snapshot for prefix caching. Under *ranks* is how many
thousand tokens the KV cache holds, at most those of 256 sequences of 4,096; `-` does not fit. *Read* is what one token reads of the
weights, all ranks together.

| model | weights / 2 bytes | weights | read | KV bytes | state | """ + " | ".join(f"{n} ranks" if n > 1 else "1 rank" for n in SIZES) + """ |
|---|---|---|---|---|---|""" + "---|" * len(SIZES) + "\n"
TAIL = """
Latent attention (DeepSeek, Kimi) keeps one vector of 576 numbers a token and layer, which every rank needs whole: its KV bytes a
rank are the same at any number of ranks, and more ranks hold more tokens only as their share of the weights falls.

Linear attention (Qwen3-Next, Qwen3.5) keeps a state for each of `max_num_seqs` sequences, before its first token and however long
it gets: what a rank has for 256 of them is gone before the KV cache. More ranks divide it, up to one for each value head.

Sliding windows and chunks of attention (Gemma, gpt-oss, Llama 4) keep what they show: the longer the sequences, the more tokens fit.
A sequence of 131,072 tokens of Gemma-3-27B takes 10.5 GiB on one rank, where full attention would take 62 GiB.
"""


def plan(binary, folder, size, text=False):
    command = [binary, "plan", "--model", folder, "--tensor-parallel-size", str(size), "--device", "cpu",
               "--device-memory", "74GiB", "--kv-cache-dtype", "bfloat16", "--max-num-seqs", "256", "--max-model-len", "4096"]
    run = subprocess.run(command + ([] if text else ["--json"]), capture_output=True, text=True, check=False)
    if run.returncode not in (0, 4):
        raise SystemExit(f"{folder}, {size} ranks: {run.stderr}")
    return run.stdout if text else json.loads(run.stdout)


def read_of(text):
    for line in text.splitlines():
        if line.startswith("weights: ") and "one token reads " in line:
            return line.split("one token reads ")[1].split(" (")[0]
    return "all"


def row(binary, path):
    name = os.path.basename(path)[:-len(".json")]
    with tempfile.TemporaryDirectory() as folder:
        with open(path, encoding="utf-8") as source, open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            out.write(source.read())
        plans = {size: plan(binary, folder, size) for size in SIZES}
        read = read_of(plan(binary, folder, 1, text=True))
    stored = plans[1]["ranks"][0]["stored_weight_bytes"]
    kv = plans[8]["ranks"][0]["kv_bytes_per_token"]
    state = plans[8]["ranks"][0]["arenas"]["state"] / 256
    cells = [f"{p['kv_tokens'] / 1000:,.0f}" if p["fits"] else "-" for p in plans.values()]
    return f"| {name} | {stored / 2e9:,.2f} B | {stored / 2**30:,.1f} GiB | {read} | {kv:,} | {f'{state / 2**20:,.1f} MiB' if state else '-'} | " + " | ".join(cells) + " |\n"


def main():
    binary = sys.argv[1]
    paths = sorted(glob.glob(os.path.join(ROOT, "tests/data/configs/*.json")), key=str.lower)
    text = HEAD + "".join(row(binary, path) for path in paths) + TAIL
    if "--check" in sys.argv:
        with open(PAGE, encoding="utf-8") as page:
            if page.read() != text:
                sys.exit("docs/capacity.md is not what scripts/capacity_table.py writes: run it")
        return
    with open(PAGE, "w", encoding="utf-8") as page:
        page.write(text)


if __name__ == "__main__":
    main()
