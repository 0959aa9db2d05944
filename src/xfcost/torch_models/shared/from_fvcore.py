"""fvcore, imported without its warnings: it scripts its losses when it is imported, which torch calls deprecated."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r".*torch\.jit")  # a DeprecationWarning up to torch 2.13, then a FutureWarning
    import fvcore
    from fvcore.nn.jit_analysis import JitModelAnalysis, _get_scoped_trace_graph

FILE: str = fvcore.__file__
# The function inside which fvcore traces; it has no public name.
TRACING = _get_scoped_trace_graph

__all__ = ["FILE", "TRACING", "JitModelAnalysis"]
