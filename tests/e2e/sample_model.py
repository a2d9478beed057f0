"""Checkpoints made of the sample model's tensors."""
import json
import os
import struct

import group


def tensors_of(path):
    """name -> (entry, bytes) of a file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (entry, data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def tensors_of_sample():
    """The same of all files."""
    tensors = {}
    for name in sorted(os.listdir(group.MODEL)):
        if name.endswith(".safetensors"):
            tensors.update(tensors_of(os.path.join(group.MODEL, name)))
    return tensors


def write_model(folder, tensors, **changes):
    """The sample with these tensors and config.json fields."""
    header, data = {}, b""
    for name, (entry, values) in tensors.items():
        header[name] = dict(entry, data_offsets=[len(data), len(data) + len(values)])
        data += values
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(group.MODEL, "config.json"), encoding="utf-8") as f:
        config = dict(json.load(f), **changes)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    os.symlink(os.path.join(group.MODEL, "tokenizer.json"), os.path.join(folder, "tokenizer.json"))
    return folder


def with_mtp_layer(folder, layers=range(6)):
    """A GLM-4.5 of the sample's layers, as with_layers has them, and an MTP layer that adds nothing to the embedding of the
    token that it is given: where that is all that the model's layers do, too, its drafts are right. Returns `folder`."""
    with_layers(folder, layers)
    path = os.path.join(folder, "model.safetensors")
    tensors, layer, size = tensors_of(path), f"model.layers.{len(layers)}.", 256
    last = f"model.layers.{len(layers) - 1}."
    for name, (entry, values) in list(tensors.items()):
        if name.startswith(last) and ".mlp." not in name:
            tensors[layer + name[len(last):]] = (entry, bytes(len(values)) if "o_proj" in name else values)

    def put(name, shape, values=None):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[layer + name] = ({"dtype": "BF16", "shape": shape}, values or bytes(2 * count))

    one = struct.pack("<H", 0x3F80)  # in bf16
    for name in ("enorm.weight", "hnorm.weight"):
        put(name, [size], one * size)
    put("eh_proj.weight", [size, 2 * size], b"".join(bytes(2 * i) + one + bytes(2 * (2 * size - 1 - i)) for i in range(size)))
    tensors[layer + "shared_head.norm.weight"] = tensors["model.norm.weight"]
    put("mlp.gate.weight", [2, size])
    put("mlp.gate.e_score_correction_bias", [2])
    for module in ("experts.0", "experts.1", "shared_experts"):
        put(f"mlp.{module}.gate_proj.weight", [32, size])
        put(f"mlp.{module}.up_proj.weight", [32, size])
        put(f"mlp.{module}.down_proj.weight", [size, 32])
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        os.unlink(os.path.join(folder, name))
    return write_model(folder, tensors, num_hidden_layers=len(layers), architectures=["Glm4MoeForCausalLM"],
                       model_type="glm4_moe", first_k_dense_replace=len(layers), n_routed_experts=2, num_experts_per_tok=1,
                       moe_intermediate_size=32, n_shared_experts=1, num_nextn_predict_layers=1, rms_norm_eps=1e-12,
                       rope_parameters={"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 1.0})


def with_layers(folder, layers, **config):
    """The sample with these of its layers; in place of None one that adds nothing to what comes in. Returns `folder`."""
    sample, tensors = tensors_of_sample(), {}
    for name, (entry, values) in sample.items():
        if not name.startswith("model.layers."):
            tensors[name] = (entry, values)
    for i, layer in enumerate(layers):
        prefix = f"model.layers.{layer or 0}."
        for name, (entry, values) in sample.items():
            if not name.startswith(prefix):
                continue
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            tensors[f"model.layers.{i}." + name[len(prefix):]] = (entry, bytes(len(values)) if adds and layer is None else values)
    os.mkdir(folder)
    return write_model(folder, tensors, num_hidden_layers=len(layers), **config)
