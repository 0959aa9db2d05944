"""Writes small checkpoints: safetensors and GGUF with the packages of these names, of models of transformers."""

from __future__ import annotations

import json
import os
import struct
from math import prod
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.numpy import save_file

from xfcost.importing.checkpoints import DTYPE_BITS

_NUMPY = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "U8": np.uint8, "I8": np.int8}


def shapes_of(config):
    """Name -> shape of every parameter of transformers' class for a config."""
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return {name: tuple(one.shape) for name, one in model.named_parameters()}


def unstacked(shapes):
    """The same with each expert of a layer by itself, as published checkpoints have them."""
    found = {}
    for name, shape in shapes.items():
        around, _, last = name.rpartition(".")
        if last not in ("gate_up_proj", "down_proj") or not around.endswith("experts"):
            found[name] = shape
            continue
        count, rows, columns = shape
        parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)
        for number in range(count):
            found |= {f"{around}.{number}.{part}.weight": (rows // len(parts), columns) for part in parts}
    return found


def write_safetensors(file, shapes, dtype="F16", dtypes=None):
    """A file with zeros of these shapes, all of one dtype but for `dtypes`."""
    of = {name: (dtypes or {}).get(name, dtype) for name in shapes}
    save_file({name: np.zeros(shape, _NUMPY[of[name]]) for name, shape in shapes.items()}, file)


def write_folder(folder, config, shapes, shards=1, **how):
    """A checkpoint as transformers saves it: config.json, shards, and their index where there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = config if isinstance(config, dict) else config.to_dict()
    (folder / "config.json").write_text(json.dumps({key: one for key, one in fields.items() if key != "id2label"}))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", shapes, **how)
        return folder
    names, index = list(shapes), {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[number::shards]
        index |= dict.fromkeys(mine, file)
        write_safetensors(folder / file, {name: shapes[name] for name in mine}, **how)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def gguf_shapes(architecture, shapes, layers, *, columns_last=True):
    """The same parameters with the names that the package has for them, experts of a layer together."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    found = {}
    for name, shape in shapes.items():
        around, _, last = name.rpartition(".")
        whole, bias = last.removesuffix("_bias"), last.endswith("_bias")
        if around.endswith("experts") and whole in ("gate_up_proj", "down_proj"):
            parts = ("gate_proj", "up_proj") if whole == "gate_up_proj" else ("down_proj",)
            sides = [*shape] if bias or columns_last else [shape[0], shape[2], shape[1]]
            sides[1] //= len(parts)
            for part in parts:
                found[f"{names.get_name(f'{around}.{part}')}.{'bias' if bias else 'weight'}"] = tuple(sides)
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None, name
        found[own] = shape
    return found


def write_gguf(file, architecture, metadata, shapes, kinds=None, words=0):
    """A file with holes for tensors of these shapes, of the type that `kinds` has for their names, or F32."""
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]])
    for key, value in metadata.items():
        kind = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{kind}")(key if key.startswith("general.") else f"{writer.arch}.{key}", value)
    if words:
        writer.add_token_list([f"word{number}" for number in range(words)])
    end = 0
    for name, shape in shapes.items():
        kind = gguf.GGMLQuantizationType[(kinds or {}).get(name, "F32")]
        block, nbytes = gguf.GGML_QUANT_SIZES[kind]
        row = (*shape[:-1], shape[-1] // block * nbytes)
        writer.add_tensor_info(name, row, np.dtype(np.uint8), prod(row), raw_dtype=kind)
        end += -(-prod(row) // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header = -(-os.path.getsize(file) // 32) * 32
    os.truncate(file, header + end)
    return Path(file)


def write_header(file, tensors):
    """A safetensors file with holes for tensors, {name: (dtype, shape)}, also of types that NumPy has not."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": [*shape], "data_offsets": [end, end + size]}
        end += size
    content = json.dumps(header).encode()
    Path(file).write_bytes(struct.pack("<Q", len(content)) + content)
    os.truncate(file, 8 + len(content) + end)
