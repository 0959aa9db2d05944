"""xfcost: cost analysis of transformer architectures: total cost, cost per operation, growth with N, verification.

>>> import xfcost
>>> ledger = xfcost.analyze("vit", N=784, trace=False)
>>> ledger.total("params")
22055272
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfcost.api.analysis import analyze, build, compare, register, trace
    from xfcost.api.roofline import roofline
    from xfcost.api.summary import summary
    from xfcost.ledger.errors import XfcostError
    from xfcost.ledger.ledger import Ledger
    from xfcost.ledger.operation import Operation
    from xfcost.ledger.residual_stream import ResidualStream
    from xfcost.questions.calibrate.answer import calibrate
    from xfcost.questions.check.answer import check
    from xfcost.questions.diagram.answer import diagram
    from xfcost.questions.diff.answer import diff
    from xfcost.questions.find.answer import find
    from xfcost.questions.glance.answer import glance
    from xfcost.questions.measure.answer import measure
    from xfcost.questions.plot.answer import plot
    from xfcost.questions.reach.answer import reach
    from xfcost.questions.report.answer import write_report
    from xfcost.questions.stream.answer import stream
    from xfcost.questions.tables.answer import layer_types, survey

__version__ = "0.1.0"
__all__ = [
    "Ledger", "Operation", "ResidualStream", "XfcostError", "analyze", "build", "calibrate", "check",
    "compare", "diagram", "diff", "find", "glance", "layer_types", "measure", "plot", "reach", "register", "roofline",
    "stream", "summary", "survey", "trace", "write_report",
]  # fmt: skip

_MODULES = {
    "analyze": "xfcost.api.analysis",
    "build": "xfcost.api.analysis",
    "calibrate": "xfcost.questions.calibrate.answer",
    "check": "xfcost.questions.check.answer",
    "compare": "xfcost.api.analysis",
    "diagram": "xfcost.questions.diagram.answer",
    "diff": "xfcost.questions.diff.answer",
    "find": "xfcost.questions.find.answer",
    "glance": "xfcost.questions.glance.answer",
    "layer_types": "xfcost.questions.tables.answer",
    "measure": "xfcost.questions.measure.answer",
    "plot": "xfcost.questions.plot.answer",
    "reach": "xfcost.questions.reach.answer",
    "register": "xfcost.api.analysis",
    "roofline": "xfcost.api.roofline",
    "stream": "xfcost.questions.stream.answer",
    "summary": "xfcost.api.summary",
    "survey": "xfcost.questions.tables.answer",
    "trace": "xfcost.api.analysis",
    "write_report": "xfcost.questions.report.answer",
    "Ledger": "xfcost.ledger.ledger",
    "Operation": "xfcost.ledger.ledger",
    "ResidualStream": "xfcost.ledger.residual_stream",
    "XfcostError": "xfcost.ledger.errors",
}
# Functions of other tools -> what to write.
_MEANT = {
    **dict.fromkeys(
        ("profile", "count", "flops", "macs", "params", "count_flops", "count_params", "FlopCountAnalysis",
         "get_model_complexity_info", "estimate", "memory"),
        "xfcost.analyze(module, x), whose result has .macs, .flops, .params and .to_frame()",
    ),
    **dict.fromkeys(("sweep", "scaling", "scale"), "xfcost.plot('vit', 'swin', N='196:3136')"),
    **dict.fromkeys(
        ("serve", "decode", "fit"), "xfcost.analyze('llama3-8b', mode='decode', on='h100-sxm'), whose result has .on"
    ),
    **dict.fromkeys(("train", "training"), "xfcost.analyze('gpt2', mode='train'), whose result has .training"),
    "crossover": "xfcost.compare('vit', 'swin').crossovers",
    **dict.fromkeys(("list", "presets", "models", "list_models"), "`xfcost list`, or xfcost.find() of all of them"),
    **dict.fromkeys(("load", "model", "create_model"), "xfcost.build('vit'), its torch model and example inputs"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import xfcost` is fast."""
    if name not in _MODULES:
        mend = f"did you mean {_MEANT[name]}?" if name in _MEANT else f"public names: {', '.join(__all__)}"
        raise AttributeError(f"module 'xfcost' has no attribute {name!r}; {mend}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
