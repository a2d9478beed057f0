#!/usr/bin/env python3
"""Writes a Llama or Mixtral checkpoint in bf16 as a GGUF file without a vocabulary, for timing: write_gguf.py GGUF_PY MODEL OUT.

GGUF_PY is the folder gguf-py of a checkout of llama.cpp or ik_llama.cpp; Python needs what that one needs. Other
formats: llama-quantize --pure OUT OTHER Q8_0.
"""
import json
import os
import struct
import sys

import numpy

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "block_sparse_moe.gate": "ffn_gate_inp"}
EXPERTS = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


def tensors_of(folder):
    """(name, bf16 as uint16 [rows, cols] or [cols]), mapped from the files."""
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        path = os.path.join(folder, file)
        with open(path, "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(size))
        data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + size)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                sys.exit(f"{name} is {entry['dtype']}: a checkpoint in bf16 is needed")
            begin, end = entry["data_offsets"]
            yield name, data[begin:end].view(numpy.uint16).reshape(entry["shape"])


def name_of(name):
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def permuted(rows, heads):
    """Halves of a head side by side, as llama.cpp turns them."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.path.insert(0, sys.argv[1])
    import gguf

    with open(os.path.join(sys.argv[2], "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if config["architectures"] not in (["LlamaForCausalLM"], ["MixtralForCausalLM"]):
        sys.exit(f"{config['architectures']}: only LlamaForCausalLM and MixtralForCausalLM are written")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(sys.argv[3], "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    if experts := config.get("num_local_experts", 0):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    stacks = {}  # of a layer's experts, until the last has come
    for name, rows in tensors_of(sys.argv[2]):
        if ".experts." in name:
            _, _, layer, _, _, expert, kind, _ = name.split(".")
            stack = stacks.setdefault(f"blk.{layer}.{EXPERTS[kind]}.weight", {})
            stack[int(expert)] = rows.view(numpy.uint8)
            if len(stack) == experts:
                name = f"blk.{layer}.{EXPERTS[kind]}.weight"
                writer.add_tensor(name, numpy.stack([stacks[name].pop(i) for i in range(experts)]),
                                  raw_dtype=gguf.GGMLQuantizationType.BF16)
            continue
        if rows.ndim == 1 or ".gate." in name:
            writer.add_tensor(name_of(name), (rows.astype(numpy.uint32) << 16).view(numpy.float32))
            continue
        if ".q_proj." in name or ".k_proj." in name:
            rows = permuted(rows, heads if ".q_proj." in name else kv_heads)
        writer.add_tensor(name_of(name), rows.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
