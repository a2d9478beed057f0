#!/usr/bin/env python3
"""Writes a checkpoint with random bf16 weights: random_model.py FOLDER [--layers N].

The shape is that of Llama 3 8B. --shape s and m are Llamas of 0.25 and 1.1 billion parameters. --experts is a mixture of
64 experts, 8 per token, with 1.3 billion of 6.9 billion parameters active (OLMoE's shape, Mixtral's tensors). --tiny is a
far smaller shape, for trials. Standard library only. One block of random numbers is repeated: use it for measuring time,
not for text.
"""
import argparse
import collections
import json
import math
import os
import struct

Shape = collections.namedtuple("Shape", "hidden heads kv_heads head_dim ffn vocab layers experts")
LLAMA_8B = Shape(4096, 32, 8, 128, 14336, 128256, 32, 0)
EXPERTS_7B = Shape(2048, 16, 16, 128, 1024, 50304, 16, 64)
SHAPES = {"s": Shape(1024, 16, 8, 64, 2816, 32000, 16, 0), "m": Shape(2048, 32, 4, 64, 5632, 32000, 22, 0), "8b": LLAMA_8B}
TINY = Shape(128, 4, 2, 32, 256, 1024, 2, 0)
BLOCK_BYTES = 32 << 20


def tensors(shape):
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", (shape.vocab, shape.hidden)
    for i in range(shape.layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (shape.hidden,)
        yield layer + "self_attn.q_proj.weight", (queries, shape.hidden)
        yield layer + "self_attn.k_proj.weight", (keys, shape.hidden)
        yield layer + "self_attn.v_proj.weight", (keys, shape.hidden)
        yield layer + "self_attn.o_proj.weight", (shape.hidden, queries)
        yield layer + "post_attention_layernorm.weight", (shape.hidden,)
        mlps = ["mlp."]
        names = ("gate_proj", "up_proj", "down_proj")
        if shape.experts:
            yield layer + "block_sparse_moe.gate.weight", (shape.experts, shape.hidden)
            mlps = [f"block_sparse_moe.experts.{e}." for e in range(shape.experts)]
            names = ("w1", "w3", "w2")
        for mlp in mlps:
            for name in names[:2]:
                yield f"{layer}{mlp}{name}.weight", (shape.ffn, shape.hidden)
            yield f"{layer}{mlp}{names[2]}.weight", (shape.hidden, shape.ffn)
    yield "model.norm.weight", (shape.hidden,)
    yield "lm_head.weight", (shape.vocab, shape.hidden)


def random_block():
    """bf16 of either sign, from 0.0078 to 0.03: random low bytes with one of two high bytes."""
    block = bytearray(BLOCK_BYTES)
    block[0::2] = os.urandom(BLOCK_BYTES // 2)
    signs = bytes(0x3C if b < 128 else 0xBC for b in range(256))
    block[1::2] = os.urandom(BLOCK_BYTES // 2).translate(signs)
    return bytes(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="folder for the checkpoint")
    parser.add_argument("--layers", type=int, help="number of layers (default: those of the shape)")
    parser.add_argument("--shape", choices=SHAPES, default="8b", help="shape of the model (default 8b)")
    parser.add_argument("--experts", action="store_true", help="write a mixture of experts")
    parser.add_argument("--tiny", action="store_true", help="write a far smaller shape")
    args = parser.parse_args()
    shape = TINY if args.tiny else EXPERTS_7B if args.experts else SHAPES[args.shape]
    if args.layers:
        shape = shape._replace(layers=args.layers)
    os.makedirs(args.folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
              "hidden_size": shape.hidden, "intermediate_size": shape.ffn, "num_hidden_layers": shape.layers,
              "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
              "vocab_size": shape.vocab, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
              "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
              "bos_token_id": shape.vocab - 2, "eos_token_id": shape.vocab - 1}
    if shape.experts:
        config.update(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=shape.experts,
                      num_experts_per_tok=8)
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)

    header, at = {}, 0
    for name, sides in tensors(shape):
        size = 2 * math.prod(sides)
        header[name] = {"dtype": "BF16", "shape": list(sides), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = random_block()
    with open(os.path.join(args.folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for begin in range(0, at, BLOCK_BYTES):
            f.write(block[: min(BLOCK_BYTES, at - begin)])
    print(f"{at / 1e9:.1f} GB in {args.folder}")


if __name__ == "__main__":
    main()
