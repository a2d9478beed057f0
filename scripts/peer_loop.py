#!/usr/bin/env python3
"""The peer of gpu_bench.sh: the same shape in PyTorch, compiled, decode as a CUDA graph, a static KV cache.

Prints tokens per second of decode at batch 1 and 64 behind 1024 tokens, and of a prefill of 4096."""
import argparse
import json
import time

import torch
import torch.nn.functional as F

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 4096, 32, 8, 128, 14336, 128256


def weight(rows, cols):
    return torch.empty(rows, cols, device="cuda", dtype=torch.bfloat16).uniform_(-0.02, 0.02)


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
        return [torch.zeros(2, batch, KV_HEADS, length, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
                for _ in self.layers]

    def rotate(self, x, position):
        c, s = self.cos[position], self.sin[position]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * c - b * s, b * c + a * s), dim=-1)

    def forward(self, tokens, position, cache, mask):
        batch, count = tokens.shape
        h = F.embedding(tokens, self.embed)
        for (qkv_w, o_w, up_w, down_w), kv in zip(self.layers, cache):
            x = F.rms_norm(h, (HIDDEN,), self.norm, 1e-5)
            q, k, v = F.linear(x, qkv_w).view(batch, count, -1, HEAD_DIM).transpose(1, 2).split(
                [HEADS, KV_HEADS, KV_HEADS], dim=1)
            q, k = self.rotate(q, position), self.rotate(k, position)
            kv[0].index_copy_(2, position, k)
            kv[1].index_copy_(2, position, v)
            if mask is None:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                y = F.scaled_dot_product_attention(q, kv[0], kv[1], attn_mask=mask, enable_gqa=True)
            h = h + F.linear(y.transpose(1, 2).reshape(batch, count, -1), o_w)
            gate, up = F.linear(F.rms_norm(h, (HIDDEN,), self.norm, 1e-5), up_w).chunk(2, dim=-1)
            h = h + F.linear(F.silu(gate) * up, down_w)
        return F.linear(F.rms_norm(h[:, -1], (HIDDEN,), self.norm, 1e-5), self.head).argmax(-1, keepdim=True)


def seconds_of(run, repeats):
    run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def decode(model, batch, context):
    cache = model.cache(batch, context + 8)
    position = torch.tensor([context], device="cuda")
    mask = (torch.arange(context + 8, device="cuda") <= context)[None, None, None, :]
    tokens = torch.zeros(batch, 1, device="cuda", dtype=torch.long)
    step = torch.compile(lambda: model.forward(tokens, position, cache, mask), mode="reduce-overhead")
    for _ in range(3):
        step()
    return batch / seconds_of(step, 50)


def prefill(model, count):
    cache = model.cache(1, count)
    position = torch.arange(count, device="cuda")
    tokens = torch.zeros(1, count, device="cuda", dtype=torch.long)
    step = torch.compile(lambda: model.forward(tokens, position, cache, None))
    return count / seconds_of(step, 5)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    model = Model(args.layers)
    result = {"torch": torch.__version__, "layers": args.layers,
              "decode_batch_1_tokens_per_s": decode(model, 1, 1024),
              "decode_batch_64_tokens_per_s": decode(model, 64, 1024),
              "prefill_4096_tokens_per_s": prefill(model, 4096)}
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print(", ".join(f"{key} {value:.0f}" for key, value in result.items() if key.endswith("per_s")))


if __name__ == "__main__":
    main()
