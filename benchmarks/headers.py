"""Seconds and memory for the headers of large checkpoints, and mutated headers: `python benchmarks/headers.py FOLDER`.

In FOLDER it writes DeepSeek-R1 in FP8 with holes for its weights (689 GB in 163 files take 21 MB of the disk), and runs
`xfcost analyze` on it and on the name of the same model. Then it changes 100,000 small headers of safetensors and GGUF
at random, by `mutated` of tests/test_checkpoints.py: each is read, or ends in one line.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
SHARDS = 163
MUTATED = 100_000
# Linux keeps the largest memory of a program apart from that of the process that started it.
_RUN = """
import re, sys
from pathlib import Path
from xfcost.__main__ import main
sys.argv = ["xfcost", *sys.argv[1:]]
try:
    main()
finally:
    print(*re.findall("VmHWM:.*?([0-9]+)", Path("/proc/self/status").read_text()), file=sys.stderr)
"""


Tensors = Iterator[tuple[str, str, tuple[int, ...]]]


def _quantised(name: str, outputs: int, inputs: int) -> Tensors:
    yield f"{name}.weight", "F8_E4M3", (outputs, inputs)
    yield f"{name}.weight_scale_inv", "F32", (-(-outputs // 128), -(-inputs // 128))


def _mlp(name: str, width: int, hidden: int) -> Tensors:
    for part, shape in (("gate", (hidden, width)), ("up", (hidden, width)), ("down", (width, hidden))):
        yield from _quantised(f"{name}.{part}_proj", *shape)


def _attention(at: str, config: dict[str, int]) -> Tensors:
    d, heads, q, kv = (config[one] for one in ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank"))
    rope, nope, value = (config[one] for one in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    norms = {"input_layernorm": d, "post_attention_layernorm": d}
    norms |= {"self_attn.q_a_layernorm": q, "self_attn.kv_a_layernorm": kv}
    for norm, width in norms.items():
        yield f"{at}.{norm}.weight", "BF16", (width,)
    yield from _quantised(f"{at}.self_attn.q_a_proj", q, d)
    yield from _quantised(f"{at}.self_attn.q_b_proj", heads * (nope + rope), q)
    yield from _quantised(f"{at}.self_attn.kv_a_proj_with_mqa", kv + rope, d)
    yield from _quantised(f"{at}.self_attn.kv_b_proj", heads * (nope + value), kv)
    yield from _quantised(f"{at}.self_attn.o_proj", d, heads * value)


def tensors(config: dict[str, int]) -> Tensors:
    """Name, type and shape of every tensor, as published; the last layer is that of multi-token prediction."""
    d, table = config["hidden_size"], (config["vocab_size"], config["hidden_size"])
    experts, layers = config["n_routed_experts"], config["num_hidden_layers"]
    for name in ("model.embed_tokens", "lm_head"):
        yield f"{name}.weight", "BF16", table
    yield "model.norm.weight", "BF16", (d,)
    for layer in range(layers + 1):
        at = f"model.layers.{layer}"
        yield from _attention(at, config)
        if layer < config["first_k_dense_replace"]:
            yield from _mlp(f"{at}.mlp", d, config["intermediate_size"])
            continue
        yield f"{at}.mlp.gate.weight", "BF16", (experts, d)
        yield f"{at}.mlp.gate.e_score_correction_bias", "F32", (experts,)
        for name in ("shared_experts", *(f"experts.{number}" for number in range(experts))):
            yield from _mlp(f"{at}.mlp.{name}", d, config["moe_intermediate_size"])
    at = f"model.layers.{layers}"
    yield f"{at}.eh_proj.weight", "BF16", (d, 2 * d)
    for name in ("embed_tokens", "shared_head.head"):
        yield f"{at}.{name}.weight", "BF16", table
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{at}.{name}.weight", "BF16", (d,)


def write(folder: Path) -> None:
    """The checkpoint, with holes for its weights."""
    from checkpoint_files import write_header
    from xfcost.spec.models import config_of

    folder.mkdir(parents=True, exist_ok=True)
    text = config_of("deepseek-r1").read_text(encoding="utf-8")
    (folder / "config.json").write_text(text, encoding="utf-8")
    every, index = list(tensors(json.loads(text))), {}
    each = -(-len(every) // SHARDS)
    for number in range(SHARDS):
        file = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        mine = {name: (dtype, shape) for name, dtype, shape in every[number * each : (number + 1) * each]}
        write_header(folder / file, mine)
        index |= dict.fromkeys(mine, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
    print(f"{len(every):,} tensors in {SHARDS} files")


def measured(spec: str) -> None:
    """Seconds of CPU and the largest memory of `xfcost analyze SPEC`."""
    words = ["analyze", spec, "--mode", "decode", "--N", "32k", "--on", "h200x8"]
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", _RUN, *words], capture_output=True, text=True, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{spec}: {seconds:.2f} s of CPU, {int(done.stderr.split()[-1]) / 1024:.0f} MiB")


def mutate(folder: Path) -> None:
    """Changed headers, one after the other."""
    import checkpoint_files as files
    from test_checkpoints import metadata_of, mutated
    from xfcost.importing.checkpoints import safetensors_file
    from xfcost.importing.gguf import read_header
    from xfcost.ledger.errors import XfcostError

    table, maps = "token_embd.weight", {"output_norm.weight": (32,), "blk.0.attn_q.weight": (32, 32)}
    files.write_safetensors(folder / "a.safetensors", maps)
    metadata = metadata_of("LLAMA", block_count=1, embedding_length=32)
    files.write_gguf(folder / "a.gguf", "LLAMA", metadata, {table: (64, 32), **maps}, {table: "Q8_0"}, words=64)
    random_, refused, start = random.Random(48), 0, time.process_time()  # noqa: S311 - no secret
    for file, read in ((folder / "a.safetensors", safetensors_file), (folder / "a.gguf", read_header)):
        given = file.read_bytes()
        for _ in range(MUTATED // 2):
            file.write_bytes(mutated(given, random_))
            try:
                read(str(file), file.name)
            except XfcostError as error:
                refused += 1
                if not str(error).isprintable():
                    raise
    megabytes = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    print(f"{MUTATED:,} changed headers: {refused:,} refused in one line, {time.process_time() - start:.0f} s of CPU, "
          f"{megabytes:.0f} MiB with torch")  # fmt: skip


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(place / "r1")
    measured(str(place / "r1"))
    measured("deepseek-r1")
    mutate(place)
