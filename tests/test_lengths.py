"""Public models at other lengths than their presets', as measured on transformers 5.23 by torch's counter.

Mixed-length encoder-decoders among them: `--N source,target`.
"""

from __future__ import annotations

import pytest

from xfcost.api.analysis import analyze

# preset, N, parameters, MACs of matrix products (FlopCounterMode/2 on meta, eager attention; the T5 head tied)
MEASURED = [
    ("bert-base", "128", 109_482_240, 11_174_215_680),
    ("bert-large", "128", 335_141_888, 39_461_060_608),
    ("t5-small", "512,114", 60_506_624, 17_708_900_352),
    ("t5-base", "512,114", 222_903_552, 70_990_700_544),
    ("t5-large", "512,114", 737_668_096, 240_696_360_960),
    ("t5-11b", "512,114", 11_307_321_344, 3_794_884_362_240),
    ("t5-v1.1-base-tied", "512,114", 222_903_552, 70_990_700_544),
    ("t5-v1.1-large-tied", "512,114", 750_251_008, 244_634_812_416),
    ("t5-v1.1-xxl-tied", "512,114", 11_003_736_064, 3_483_394_375_680),
    ("transformer-base", "25", 63_045_632, 1_586_124_800),
    ("transformer-base", "25,25", 63_045_632, 1_586_124_800),
    ("rwkv4-430m", "1", 430_397_440, 378_639_360),
    ("rwkv4-1b5", "1", 1_515_106_304, 1_411_590_144),
    ("rwkv4-7b", "1", 7_392_649_216, 7_185_256_448),
    ("rwkv4-14b", "1", 14_148_597_760, 13_888_906_240),
]


@pytest.mark.parametrize(("preset", "length", "params", "macs"), MEASURED)
def test_public_models_at_other_lengths(preset: str, length: str, params: int, macs: int) -> None:
    ledger = analyze(preset, N=length, trace=False)
    assert (ledger.total("params"), ledger.total("macs")) == (params, macs)
