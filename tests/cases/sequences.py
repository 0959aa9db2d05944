"""Recurrent layers, state-space models and long convolutions under the contract."""

from typing import Any

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.mechanisms.recurrent import Additive, Gru, Lstm, Maxout, Recurrent, Rnn, Sum
from xfcost.mechanisms.retention import Retention, RwkvChannel, RwkvTime

OPTIONS = {"hidden": st.none() | st.integers(1, 64), "bidirectional": st.booleans(), "bias": st.booleans()}
ATTENTION = Additive(hidden=5)
READING = {
    "hidden": st.integers(1, 64),
    "bias": st.booleans(),
    "attend": st.builds(Additive, hidden=st.integers(1, 64), bias=st.booleans(), gate=st.booleans()),
    "start": st.sampled_from(["zeros", "backwards", "mean"]),
    "readout": st.none() | st.builds(Maxout, hidden=st.integers(1, 64)) | st.builds(Sum),
}


def recurrent_case(component: type[Recurrent], examples: tuple[Recurrent, ...], **more: Any) -> MechanismCase:
    """`more`: strategies of the options that this one alone has."""
    return MechanismCase(
        component=component,
        examples=examples,
        components=st.builds(component, **OPTIONS, **more) | st.builds(component, **READING, **more),
        # Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
        grids=(*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1)),
        # few: where shapes are all that counts the steps are walked all the same
        growth=lambda component: (Grid((2,)), Grid((4,))),
        fused=False,
        memory=True,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
        # it asks with the state of the step before: what it reads is counted for that step's token, and not for its own
    )


RNN = recurrent_case(
    Rnn,
    (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True), Rnn(attend=ATTENTION)),
    act=st.sampled_from(["tanh", "relu"]),
)


LSTM = recurrent_case(
    Lstm,
    (
        Lstm(),
        Lstm(bidirectional=True, bias=False),
        Lstm(hidden=4, residual="none"),
        Lstm(hidden=4, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum()),
    ),
)


GRU = recurrent_case(
    Gru,
    (
        Gru(),
        Gru(reset="before"),
        Gru(reset="before", bias=False),
        Gru(bidirectional=True),
        Gru(attend=ATTENTION, start="mean"),
        Gru(
            hidden=4,
            bias=False,
            reset="before",
            attend=ATTENTION,
            start="backwards",
            readout=Maxout(hidden=3),
            residual="none",
        ),
    ),
    reset=st.sampled_from(["after", "before"]),
)


HYENA = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12,)), Grid((24,)))),
    component=Hyena,
    examples=(
        Hyena(features=5, filter_hidden=7),
        Hyena(order=3, conv=1, features=3, filter_hidden=4, filter_layers=1, positions="fixed"),
        Hyena(order=4, conv=9, features=9, filter_hidden=5, filter_layers=3),
    ),
    components=st.builds(
        Hyena,
        order=st.integers(2, 6),
        conv=st.integers(1, 9),
        features=st.integers(1, 20).map(lambda bands: 2 * bands + 1),
        filter_hidden=st.integers(1, 64),
        filter_layers=st.integers(1, 4),
        positions=st.sampled_from(["learned", "fixed"]),
    ),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda component: (Grid((4,)), Grid((8,))),
    fused=False,
    channels_first=lambda leaf: leaf == "short_conv",
    rounding=1e-13,
)


MAMBA = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12,)), Grid((24,)))),
    component=Mamba,
    examples=(Mamba(state=3), Mamba(state=2, conv=1, expand=1, rank=3), Mamba(state=4, conv=9)),
    components=st.builds(
        Mamba,
        state=st.integers(1, 20),
        conv=st.integers(1, 9),
        expand=st.integers(1, 4),
        rank=st.none() | st.integers(1, 9),
    ),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda component: (Grid((2,)), Grid((4,))),
    fused=False,
    per_token=False,
    channels_first=lambda leaf: leaf == "conv",
)


@st.composite
def any_mamba2(draw: st.DrawFn) -> Mamba2:
    expand = draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([1, 2, 3, 6]))
    heads = expand * 12 // head_dim
    return Mamba2(
        state=draw(st.integers(1, 20)),
        head_dim=head_dim,
        groups=draw(st.sampled_from([group for group in range(1, heads + 1) if heads % group == 0])),
        conv=draw(st.integers(1, 9)),
        expand=expand,
        chunk=draw(st.integers(1, 9)),
    )


MAMBA2 = MechanismCase(
    rows=Rows(dim=12, grids=lambda component: (Grid((3 * component.chunk,)), Grid((6 * component.chunk,)))),
    component=Mamba2,
    examples=(
        Mamba2(state=3, head_dim=3, chunk=4),
        Mamba2(state=2, head_dim=2, groups=2, conv=1, expand=2, chunk=5),
        Mamba2(state=4, head_dim=2, expand=1, conv=9, chunk=8),
    ),
    components=any_mamba2(),
    growth=lambda component: (Grid((component.chunk,)), Grid((2 * component.chunk,))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    channels_first=lambda leaf: leaf == "conv",
)


@st.composite
def any_retention(draw: st.DrawFn) -> Retention:
    heads = draw(st.sampled_from([1, 2, 3, 6]))
    form = draw(st.sampled_from(["parallel", "chunkwise", "recurrent"]))
    return Retention(
        heads=heads,
        value_dim=draw(st.none() | st.integers(1, 9).map(lambda times: times * heads)),
        form=form,
        chunk=draw(st.none() | st.integers(1, 9)) if form == "chunkwise" else None,
        norm=draw(st.sampled_from(["layer_norm", "rms_norm"])),
    )


RETENTION = MechanismCase(
    rows=Rows(
        dim=36, grids=lambda component: (Grid((3 * (component.chunk or 4),)), Grid((6 * (component.chunk or 4),)))
    ),
    component=Retention,
    examples=(
        Retention(heads=2),
        Retention(heads=3, value_dim=15, norm="rms_norm", form="chunkwise", chunk=4),
        Retention(heads=2, form="chunkwise", chunk=5),
        Retention(heads=6, form="recurrent"),
    ),
    components=any_retention(),
    growth=lambda component: (Grid((component.chunk or 6,)), Grid((2 * (component.chunk or 6),))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    dim=12,
)


COMMON = {
    "grids": SEQUENCES,
    "sides": st.integers(1, 60).map(lambda n: (n,)),
    "growth": lambda component: (Grid((4,)), Grid((8,))),
    "fused": False,
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
    # beside its own
}


RWKV_TIME = MechanismCase(component=RwkvTime, examples=(RwkvTime(),), components=st.just(RwkvTime()), **COMMON)


RWKV_CHANNEL = MechanismCase(
    component=RwkvChannel,
    examples=(RwkvChannel(), RwkvChannel(hidden=40)),
    components=st.builds(RwkvChannel, hidden=st.none() | st.integers(1, 64)),
    **COMMON,
)
