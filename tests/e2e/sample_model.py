"""Checkpoints made of the sample model's tensors."""
import json
import os
import struct

import group


def tensors_of_sample():
    """name -> (entry, bytes) of all files."""
    tensors = {}
    for name in sorted(os.listdir(group.MODEL)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(group.MODEL, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[tensor] = (entry, data[begin:end])
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


def with_layers(folder, layers):
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
    return write_model(folder, tensors, num_hidden_layers=len(layers))
