#!/usr/bin/env python3
"""Comparison for gpu_bench.sh: the same shape in PyTorch, compiled, with decode as a CUDA graph and
a static KV cache.

Prints decode tokens per second at batches of 1 to 128 with a context of 1024 tokens, and prefill tokens
per second for prompts of 4096 and 8128; each figure is in the file as soon as it is measured. One compiled layer is reused for
all layers: the same kernels run, and compiling 32 layers as one graph takes minutes.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 4096, 32, 8, 128, 14336, 128256


def weight(rows, cols):
    return torch.empty(rows, cols, device="cuda", dtype=torch.bfloat16).uniform_(-0.02, 0.02)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@torch.compile(dynamic=False)
def layer(h, norm, weights, keys, values, position, cos, sin, end):
    """One token after `end` - 1 others; with `end` 0 a prompt from the start."""
    qkv_w, o_w, up_w, down_w = weights
    batch, count, _ = h.shape
    x = F.rms_norm(h, (HIDDEN,), norm, 1e-5)
    q, k, v = F.linear(x, qkv_w).view(batch, count, -1, HEAD_DIM).transpose(1, 2).split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    keys[:, :, position] = k
    values[:, :, position] = v
    if end:
        y = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], enable_gqa=True)
    else:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    h = h + F.linear(y.transpose(1, 2).reshape(batch, count, -1), o_w)
    gate, up = F.linear(F.rms_norm(h, (HIDDEN,), norm, 1e-5), up_w).chunk(2, dim=-1)
    return h + F.linear(F.silu(gate) * up, down_w)


class Model:
    def __init__(self, layers):
        self.embed = weight(VOCAB, HIDDEN)
        self.head = weight(VOCAB, HIDDEN)
        self.norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN), weight(HIDDEN, HEADS * HEAD_DIM),
                        weight(2 * FFN, HIDDEN), weight(HIDDEN, FFN)) for _ in range(layers)]
        inverse = 500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda", dtype=torch.float32) / HEAD_DIM)
        angles = torch.outer(torch.arange(8192, device="cuda", dtype=torch.float32), inverse)
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def cache(self, batch, length):
        return [tuple(torch.zeros(batch, KV_HEADS, length, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in "kv")
                for _ in self.layers]

    def forward(self, tokens, position, cache, end):
        h = F.embedding(tokens, self.embed)
        cos, sin = self.cos[position], self.sin[position]
        for weights, (keys, values) in zip(self.layers, cache):
            h = layer(h, self.norm, weights, keys, values, position, cos, sin, end)
        return F.linear(F.rms_norm(h[:, -1], (HIDDEN,), self.norm, 1e-5), self.head).argmax(-1, keepdim=True)


def seconds_of(run, repeats):
    run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def as_graph(step):
    """Compiled and warmed up, on its own stream as required for capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def decode(model, batch, context):
    cache = model.cache(batch, context + 8)
    position = torch.tensor([context], device="cuda")
    tokens = torch.zeros(batch, 1, device="cuda", dtype=torch.long)
    return batch / seconds_of(as_graph(lambda: model.forward(tokens, position, cache, context + 1)), 50)


def prefill(model, count):
    cache = model.cache(1, count)
    position = torch.arange(count, device="cuda")
    tokens = torch.zeros(1, count, device="cuda", dtype=torch.long)
    return count / seconds_of(lambda: model.forward(tokens, position, cache, 0), 5)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32, help="number of layers (default 32)")
    parser.add_argument("--out", required=True, help="file for the figures as JSON")
    args = parser.parse_args()
    model = Model(args.layers)
    result = {"torch": torch.__version__, "layers": args.layers}
    for name, measure in (("decode_batch_1_tokens_per_s", lambda: decode(model, 1, 1024)),
                          ("prefill_4096_tokens_per_s", lambda: prefill(model, 4096)),
                          ("decode_batch_64_tokens_per_s", lambda: decode(model, 64, 1024)),
                          ("decode_batch_8_tokens_per_s", lambda: decode(model, 8, 1024)),
                          ("prefill_8128_tokens_per_s", lambda: prefill(model, 8128)),
                          ("decode_batch_128_tokens_per_s", lambda: decode(model, 128, 1024))):
        result[name] = measure()
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
        print(", ".join(f"{key} {value:.0f}" for key, value in result.items() if key.endswith("per_s")), flush=True)


if __name__ == "__main__":
    main()
