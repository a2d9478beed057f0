#!/usr/bin/python3
"""Write docs/capacity.md: what `bulkhead plan` says of published models: capacity_table.py BULKHEAD [--check]"""
import glob
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/capacity.md")
SIZES = {"h100": (1, 2, 4, 8, 16), "cpu": (1, 2, 4, 8, 16, 32)}
LIMITS = ["--kv-cache-dtype", "bfloat16", "--max-num-seqs", "256", "--max-model-len", "4096"]
DEVICES = {"cpu": ["--device", "cpu", "--device-memory", "74GiB"], "h100": ["--gpu", "h100"]}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"]}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
# The quantization_config of the published checkpoint, which tests/data/configs/ leaves out.
PUBLISHED = {"gpt-oss-20b": ("MXFP4", MXFP4), "gpt-oss-120b": ("MXFP4", MXFP4),
             "DeepSeek-V3": ("FP8", FP8), "Kimi-K2": ("FP8", FP8)}


def columns(device):
    return " | ".join(f"{n} ranks" if n > 1 else "1 rank" for n in SIZES[device])


HEAD = f"""# Capacity of published models

What `bulkhead plan` computes from each `config.json` in `tests/data/configs/` (which lack some fields that change no size), written by
`scripts/capacity_table.py`. Weights are in bfloat16; rows with MXFP4 or FP8 are the published quantised checkpoints of models that are
published so, with their `quantization_config`. The KV cache is in bfloat16. Under *ranks* is how many thousand tokens it holds; `-` means that
the model does not fit.

## One H100 80GB for each rank

```
bulkhead plan --model DIR --gpu h100 --tensor-parallel-size N {" ".join(LIMITS)}
```

The CUDA driver and libraries are counted with the most that `plan` expects of them (`serve` measures it); the KV cache takes all that is left.

| model | {columns("h100")} |
|---|{"---|" * len(SIZES["h100"])}
"""
CPU_HEAD = f"""
## CPUs with 74 GiB for each rank

```
bulkhead plan --model DIR --device cpu --device-memory 74GiB --tensor-parallel-size N {" ".join(LIMITS)}
```

On CPUs the KV cache is never larger than 256 sequences of 4,096 tokens need, 1,049 thousand tokens.

* *weights*: as Bulkhead holds them, with the routers of mixtures of experts in float32; *parameters*: the bytes in bfloat16, divided by two.
* *read*: the bytes of weights that a step with one token reads, all ranks together.
* *KV bytes*: what each further token of a long sequence takes on one of 8 ranks; layers with a sliding window take nothing more.
* *state*: what linear attention keeps for each sequence on one of 8 ranks, with its snapshot for prefix caching.

| model | parameters | weights | read | KV bytes | state | {columns("cpu")} |
|---|---|---|---|---|---|{"---|" * len(SIZES["cpu"])}
"""
TAIL = """
## Notes

Latent attention (DeepSeek, Kimi) caches one vector of 576 numbers for each token and layer, and every rank needs all of it. Its KV bytes for each
rank are the same at any number of ranks, so more ranks hold more tokens only because each has a smaller part of the weights.

Linear attention (Qwen3-Next, Qwen3.5) has a state of a fixed size for each of `max_num_seqs` sequences, allocated at start. The states of 256
sequences are subtracted before the KV cache is sized; fewer sequences leave more for it. More ranks divide the states, up to one value
head for each rank.

Layers with sliding windows or chunked attention (Gemma, gpt-oss, Llama 4) cache only the tokens within the window, so the number of tokens
that fit grows with the length of the sequences. A sequence of 131,072 tokens of Gemma-3-27B takes 10.5 GiB on one rank; full attention would take 62 GiB.
"""


def plan(binary, folder, device, size):
    command = [binary, "plan", "--model", folder, "--tensor-parallel-size", str(size), *DEVICES[device], *LIMITS]
    # cuBLASLt is planned with, whatever the environment says.
    environment = {name: value for name, value in os.environ.items() if name != "BULKHEAD_CUBLASLT"}
    run = subprocess.run(command + ["--json"], capture_output=True, text=True, check=False, env=environment)
    if run.returncode not in (0, 4):
        raise SystemExit(f"{folder}, {size} ranks: {run.stderr}")
    return json.loads(run.stdout)


def read_of(planned):
    reads = [read["bytes"] for read in planned.get("weight_reads", []) if read["tokens"] == 1]
    return f"{reads[0] / 2**30:,.1f} GiB" if reads else "all"


def tokens_of(plans):
    return " | ".join(f"{p['kv_tokens'] / 1000:,.0f}" if p["fits"] else "-" for p in plans)


def rows(binary, name, config, parameters=None):
    """The rows of both tables, and the number of parameters."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            json.dump(config, out)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            plans = {device: {size: pool.submit(plan, binary, folder, device, size) for size in SIZES[device]} for device in DEVICES}
            gpu, cpu = ({size: future.result() for size, future in plans[device].items()} for device in ("h100", "cpu"))
    stored = cpu[1]["ranks"][0]["stored_weight_bytes"]
    parameters = parameters or f"{stored / 2e9:,.2f} B"
    state = cpu[8]["ranks"][0]["arenas"]["state"] / 256
    cells = [name, parameters, f"{stored / 2**30:,.1f} GiB", read_of(cpu[1]), f"{cpu[8]['ranks'][0]['kv_bytes_per_token']:,}",
             f"{state / 2**20:,.1f} MiB" if state else "-", tokens_of(cpu.values())]
    return f"| {name} | {tokens_of(gpu.values())} |\n", f"| {' | '.join(cells)} |\n", parameters


def tables(binary):
    gpu, cpu = "", ""
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/data/configs/*.json")), key=str.lower):
        name = os.path.basename(path)[:-len(".json")]
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        of_gpu, of_cpu, parameters = rows(binary, name, config)
        gpu, cpu = gpu + of_gpu, cpu + of_cpu
        if name in PUBLISHED:
            label, quantization = PUBLISHED[name]
            of_gpu, of_cpu, _ = rows(binary, f"{name}, {label}", dict(config, quantization_config=quantization), parameters)
            gpu, cpu = gpu + of_gpu, cpu + of_cpu
    return gpu, cpu


def main():
    gpu, cpu = tables(sys.argv[1])
    text = HEAD + gpu + CPU_HEAD + cpu + TAIL
    if "--check" in sys.argv:
        with open(PAGE, encoding="utf-8") as page:
            if page.read() != text:
                sys.exit("docs/capacity.md is not what scripts/capacity_table.py writes: run it")
        return
    with open(PAGE, "w", encoding="utf-8") as page:
        page.write(text)


if __name__ == "__main__":
    main()
