#!/usr/bin/env python3
"""Writes a checkpoint of the Llama 3 8B shape with random bf16 weights: random_model.py FOLDER [--layers N].

Standard library alone. One block of random numbers is written over and over: for timing, not for text."""
import argparse
import json
import os
import struct

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 4096, 32, 8, 128, 14336, 128256
BLOCK_BYTES = 32 << 20


def tensors(layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        yield layer + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def random_block():
    """bf16 of either sign, from 0.0078 to 0.03: random low bytes under two high bytes."""
    block = bytearray(BLOCK_BYTES)
    block[0::2] = os.urandom(BLOCK_BYTES // 2)
    signs = bytes(0x3C if b < 128 else 0xBC for b in range(256))
    block[1::2] = os.urandom(BLOCK_BYTES // 2).translate(signs)
    return bytes(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
              "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": args.layers,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
              "vocab_size": VOCAB, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
              "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
              "bos_token_id": 128000, "eos_token_id": 128001}
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)

    header, at = {}, 0
    for name, shape in tensors(args.layers):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
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
