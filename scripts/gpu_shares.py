#!/usr/bin/env python3
"""What gpu_bench.sh has measured, a line for each case: "name<TAB>text", the text being tokens per
second, their share of what reading allows, and their ratio to the PyTorch loop where it has the case.

gpu_shares.py OUT MODEL: OUT holds the results of `bulkhead bench throughput` (*.json), the log of
`bench kernels` and peer.json. What reading allows: a step of decoding reads every weight but the
embedding once, and the cache of all sequences at the middle of the new tokens, at the ceiling that
`bench kernels` measured."""
import glob
import json
import os
import re
import sys


def reading_bytes_per_s(folder):
    for path in glob.glob(os.path.join(folder, "kernels_against*.log")):
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                if match := re.search(r" of +([0-9.]+) +[0-9]+ %", line):
                    return float(match.group(1)) * 1e9
    return 0.0


def weight_bytes(result, config):
    """That a step reads: all but the embedding, unless the head is the embedding."""
    stored = result["memory"]["report"]["ranks"][0]["stored_weight_bytes"]
    if config.get("tie_word_embeddings"):
        return stored
    width = 2 if result["weight_dtype"].startswith(("bf", "f16", "float16")) else 1
    return stored - config["vocab_size"] * config["hidden_size"] * width


def lines_of(result, config, reading, peer):
    rank = result["memory"]["report"]["ranks"][0]
    kinds = f"{result['weight_dtype'].split(' ')[0]}, {result['kv_cache_dtype']} cache"
    for case in result["cases"]:
        batch, prompt, new = case["batch_size"], case["input_len"], case["output_len"]
        if new > 2:
            rate = case["decode_tokens_per_s"]
            text = f"{rate:.0f} tokens/s"
            if reading > 0:
                read = weight_bytes(result, config) + batch * (prompt + new / 2) * rank["kv_bytes_per_token"]
                text += f", {100 * rate * read / batch / reading:.0f} % of reading"
            key = f"decode_batch_{batch}_tokens_per_s"
            same = prompt == 1024 and kinds == "bfloat16, bfloat16 cache"
            yield f"decode {batch} x {prompt}, {kinds}", text + (ratio(rate, peer.get(key)) if same else "")
        else:
            rate = case["prefill_tokens_per_s"]
            yield f"prefill {batch} x {prompt}, {kinds}", f"{rate:.0f} tokens/s" + ratio(rate, peer.get(f"prefill_{prompt}_tokens_per_s"))


def ratio(rate, peer):
    return f", {rate / peer:.2f} of PyTorch's {peer:.0f}" if peer else ""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


def main():
    folder, model = sys.argv[1:]
    config = read_json(os.path.join(model, "config.json"))
    peer = read_json(os.path.join(folder, "peer.json"))
    reading = reading_bytes_per_s(folder)
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        result = read_json(path)
        if isinstance(result, dict) and result.get("bench") == "throughput" and config:
            for name, text in lines_of(result, config, reading, peer):
                print(f"{name}\t{text}")


if __name__ == "__main__":
    main()
