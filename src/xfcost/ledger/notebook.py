"""Results as reports: at Python's prompt, in a notebook, and in every format of the command line.

Results can't import reports, which are a layer above: `xfcost.api` registers the renderers by the name of their class.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.errors import did_you_mean, near_names, printable

if TYPE_CHECKING:
    import pandas as pd

_HTML: Final[dict[str, Callable[[Any], str]]] = {}
_REPORTS: Final[dict[str, Callable[[Any], Any]]] = {}
_SAVE: Final[list[Callable[..., None]]] = []
_SVG: Final[dict[str, Callable[[Any], str]]] = {}
_MOST_CHARACTERS: Final = 200


def register(name: str, html: Callable[[Any], str], report: Callable[[Any], Any]) -> None:
    """Use `html` in a notebook, and elsewhere the document that `report` makes, for results of the class `name`."""
    _HTML[name], _REPORTS[name] = html, report


def register_writer(save: Callable[..., None]) -> None:
    """Use `save` (document, file, form or None, `force`) to write reports to files."""
    _SAVE[:] = [save]


def register_picture(name: str, renderer: Callable[[Any], str]) -> None:
    """Use the SVG of `renderer` for every result whose class is called `name`."""
    _SVG[name] = renderer


def line(result: object, text: str) -> str:
    """The `repr` of a result: its class and `text`, on one line of at most 200 characters or so."""
    return f"<{type(result).__name__} {printable(text, _MOST_CHARACTERS)}>"


def html(result: Any) -> str | None:
    """The HTML of `result`; None where nothing is registered, and a notebook shows its `repr`."""
    renderer = _HTML.get(type(result).__name__)
    return None if renderer is None else renderer(result)


def text(result: Any) -> str:
    """What `print` shows: the report of `result`; its `repr` where nothing is registered."""
    report = _REPORTS.get(type(result).__name__)
    return repr(result) if report is None else str(report(result).text("table")).rstrip("\n")


def svg(result: Any) -> str | None:
    """The picture of `result`, likewise."""
    renderer = _SVG.get(type(result).__name__)
    return None if renderer is None else renderer(result)


class Reported:
    """What every result of a question is: a report, printed, in a notebook, as text in a format, or in a file."""

    __slots__ = ()

    def __str__(self) -> str:
        """The report."""
        return text(self)

    def _repr_html_(self) -> str | None:
        return html(self)

    def __getattr__(self, name: str) -> Any:
        """What pandas, msgspec and others call the same; nothing else."""
        if name in _WORDS:
            return getattr(self, _WORDS[name])
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        near = [] if name.startswith("_") else near_names(name, known)
        mend = f"; it is {_MEANT[name]}" if name in _MEANT else f"; {did_you_mean(near)}" if near else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{mend}")

    def to_frame(self) -> pd.DataFrame:
        """One line per record of the CSV report. Imports pandas."""
        import pandas as pd

        return pd.DataFrame.from_records(_report(self).records())

    def to_dict(self) -> dict[str, Any]:
        """The object of `--format json`."""
        import json

        found: dict[str, Any] = json.loads(_report(self).text("json"))
        return found

    def to_csv(self, file: str | os.PathLike[str] | None = None, *, force: bool = False) -> str | None:
        """The report as CSV; None where it is written to a `file`, which must not exist unless `force` is given."""
        return _written(self, "csv", file, force=force)

    def to_markdown(self, file: str | os.PathLike[str] | None = None, *, force: bool = False) -> str | None:
        """The report as Markdown, likewise."""
        return _written(self, "markdown", file, force=force)

    def to_latex(self, file: str | os.PathLike[str] | None = None, *, force: bool = False) -> str | None:
        """The table as LaTeX, likewise."""
        return _written(self, "latex", file, force=force)

    def save(self, file: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the report to a file, whose ending (.json, .csv, .md, .tex, .txt) is its format.

        Raises:
            UsageError: the ending is of no format.
            OutputError: the file can't be written, or exists and `force` is not given.
        """
        _SAVE[0](_report(self), file, None, force=force)


# Methods as other libraries call them.
_WORDS: Final = {
    **dict.fromkeys(("to_pandas", "to_dataframe", "to_df"), "to_frame"),
    **dict.fromkeys(("as_dict", "asdict"), "to_dict"),
    "json": "to_json",
    "summary": "__str__",
    **{f"{prefix}{one}": one for prefix in ("total_", "num_", "n_") for one in ("flops", "macs", "params")},
    **dict.fromkeys(("parameters", "total_parameters", "num_parameters"), "params"),
}
# What a result has in another place -> what to write.
_MEANT: Final = {
    **dict.fromkeys(
        ("per_token", "local_mixing", "global_mixing", "local", "mixing"),
        ".total('flops', lambda row: row.mixing == 'global'), or 'local' or 'per-token'",
    ),
    "fits": ".on.memory.fits, of a run with on=…",
    **dict.fromkeys(("latency", "seconds", "time"), ".timing of a run with device='cpu', or .on.time of one with on=…"),
    **dict.fromkeys(("kv_cache", "kv_cache_bytes"), ".cache of a run with mode='decode'"),
}


def _report(result: Any) -> Any:
    return _REPORTS[type(result).__name__](result)


def _written(result: Any, form: str, file: str | os.PathLike[str] | None, *, force: bool) -> str | None:
    if file is None:
        return str(_report(result).text(form))
    _SAVE[0](_report(result), file, form, force=force)
    return None
