"""Which models fit: of the gallery, or of one spec whose keys are varied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.api.arguments import arguments_checked
from xfcost.api.notebooks import show_as
from xfcost.api.specs import settings_texts, spec_name
from xfcost.counting.find.gallery import find_in_gallery, presets_of
from xfcost.counting.find.quantities import QUANTITIES, front_names, quantity_name
from xfcost.counting.find.result import Found, Question
from xfcost.counting.find.search import Chunk, Mapper, Progress, Varied, find_in_ranges
from xfcost.counting.find.selection import Part
from xfcost.counting.find.variables import read_variables
from xfcost.counting.run_options import make_run
from xfcost.ledger.budgets import read_budgets
from xfcost.ledger.errors import UsageError
from xfcost.ledger.options import RunOptions
from xfcost.ledger.quantities import whole_number

if TYPE_CHECKING:
    from rich.console import RenderableType
    from typing_extensions import Unpack

_MOST_TOP: Final = 100_000
_MOST_LIMIT: Final = 10**12
_MOST_JOBS: Final = 1000


class Asked(NamedTuple):
    """What a search is asked for, beside its models and run options: texts of the command line, or numbers."""

    budgets: Mapping[str, Any] = {}
    sort: str = "params"
    descending: bool | None = None
    """None: as the quantity is better, parameters from the most and costs from the least."""
    top: Any = 20
    front: str = "params,macs"

    def question(self) -> Question:
        """The checked question.

        Raises:
            UsageError: a budget, a quantity or a number can't be.
        """
        sort = quantity_name("--sort", self.sort)
        return Question(
            budgets=read_budgets(self.budgets),
            sort=sort,
            descending=QUANTITIES[sort].descending if self.descending is None else self.descending,
            top=whole_number("--top", self.top, least=1, most=_MOST_TOP, example="50"),
            front=front_names(self.front),
        )


class Processors(NamedTuple):
    """Where a search over ranges runs."""

    jobs: Any = 1
    """Processes of this machine."""
    scheduler: str | None = None
    """A Dask cluster."""


@arguments_checked
def find(  # noqa: PLR0913 - options
    *specs: str,
    vary: Mapping[str, Any] | Sequence[str] = (),
    max_params: float | str | None = None,
    max_macs: float | str | None = None,
    max_memory: int | str | None = None,
    max_flops: float | str | None = None,
    max_kv_cache: int | str | None = None,
    max_seconds: float | str | None = None,
    sort: str = "params",
    descending: bool | None = None,
    top: int = 20,
    front: str = "params,macs",
    family: str | Sequence[str] = (),
    limit: int | str | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    settings: Sequence[str] | None = (),
    **options: Unpack[RunOptions],
) -> Found:
    """The models that fit budgets, sorted, with the front among them, and why the others don't.

    >>> import xfcost
    >>> found = xfcost.find(size=512, max_macs="25G", family="swin")
    >>> found.rows[0].name, found.rows[0].figures["params"]
    ('swin-t', 28288354)

    Args:
        *specs: presets or patterns of them (`swin-*`) or paths; all presets by default. With `vary`, one.
        vary: keys of the spec and their values: `{"stages.2.depth": range(2, 19, 2)}`, or `"stages.2.depth=2:18:2"`
            texts. Every combination is counted.
        max_params: the most parameters, `"30M"`.
        max_macs: the most MACs, `"25G"`.
        max_memory: the most memory of inference, `"2GiB"`, or a number of bytes: weights, attention matrices alive at
            once, and the cache.
        max_flops: the most FLOPs, `"50G"`.
        max_kv_cache: the most bytes of KV cache and state, `"4GiB"`, in the modes prefill and decode.
        max_seconds: with `on`, the most that the lower bound of the time may be, `"10ms"`, or a number of seconds.
        sort: the quantity to sort by: params, macs, flops, memory, …; with `on` also seconds.
        descending: from the most to the least; by default so for params.
        top: how many models of a search over ranges are listed.
        front: the most of one quantity for the least of another.
        family: only presets of these families.
        limit: at most so many configurations, drawn at random from larger spaces.
        jobs: processes that search.
        scheduler: the address of a Dask cluster that searches.
        settings: overrides, `key.path=value` each.
        **options: N, size, batch, dtype, attention, mode and so on, as for `analyze`; `on` leaves out what does not
            fit in the memory of the devices.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    budgets = {"params": max_params, "macs": max_macs, "memory": max_memory, "flops": max_flops}
    budgets |= {"kv_cache": max_kv_cache, "seconds": max_seconds}
    asked = Asked(budgets, sort, descending, top, front)
    families = [family] if isinstance(family, str) else list(family or ())
    texts = settings_texts(settings)
    where = Processors(jobs, scheduler)
    return answer(specs, Search(vary, families, limit), asked, options, texts, where)


class Search(NamedTuple):
    """Which models are searched."""

    vary: Mapping[str, Any] | Sequence[str] = ()
    families: Sequence[str] = ()
    limit: Any = None


def answer(  # noqa: PLR0913 - the models, the question, the run, and where it runs
    specs: Sequence[str | os.PathLike[str]],
    search: Search,
    asked: Asked,
    options: Mapping[str, Any],
    settings: Sequence[str],
    where: Processors = Processors(),  # noqa: B008 - immutable
    progress: Progress = Progress(),  # noqa: B008 - immutable
) -> Found:
    """The answer over the gallery, or, where keys are varied, over one spec.

    Raises:
        XfcostError: bad input.
    """
    question, run = asked.question(), make_run(**options)
    names = [spec_name(spec) for spec in specs]
    jobs = whole_number("--jobs", where.jobs, least=1, most=_MOST_JOBS, example="4")
    if not search.vary:
        _refuse_given({"--limit": search.limit, "--scheduler": where.scheduler, "--jobs": jobs > 1 or None})
        return find_in_gallery(presets_of(names, search.families), run, question, settings)
    if len(names) != 1 or search.families:
        raise UsageError("--vary: the keys of one spec are varied; name one, as in xfcost find swin-t --vary …")
    limit = search.limit
    if limit is not None:
        limit = whole_number("--limit", limit, least=1, most=_MOST_LIMIT, example="1M")
    varied = Varied(names[0], tuple(settings), read_variables(search.vary))
    if where.scheduler is not None and jobs > 1:
        raise UsageError("--jobs and --scheduler: the workers of a cluster run side by side already; leave out --jobs")
    with _mapper(jobs, where.scheduler) as mapper:
        return find_in_ranges(varied, run, question, limit, mapper, progress)


def _refuse_given(options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option}: it is of a search over ranges; add --vary, or leave {option} out")


@contextmanager
def _mapper(jobs: int, scheduler: str | None) -> Iterator[Mapper]:
    if scheduler is not None:
        from xfcost.api.measuring.cluster import Cluster

        with closing(Cluster(scheduler)) as cluster:
            yield cluster.each
    elif jobs > 1:
        yield lambda work, chunks: _side_by_side(jobs, work, chunks)
    else:
        yield map


def _side_by_side(jobs: int, work: Callable[[Chunk], Part], chunks: Iterable[Chunk]) -> Iterator[Part]:
    from joblib import Parallel, delayed

    answers: Iterator[Part] = Parallel(n_jobs=jobs, return_as="generator")(delayed(work)(chunk) for chunk in chunks)
    return answers


def _render(result: Found, width: int) -> RenderableType:
    from xfcost.report.find import document

    return document(result).terminal(width)


show_as("Found", _render)
