"""Which models fit: of the gallery, or of one spec whose keys are varied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from xfcost.api.options import (
    BudgetOptions,
    RunOptions,
    SchedulerOption,
    SearchOptions,
    SettingsOption,
    read_option,
    takes,
)
from xfcost.api.refusals import refuse
from xfcost.api.runs import make_run, taken_budgets
from xfcost.api.systems import COUNTED_MODES, check_options, open_systems, settings_texts, spec_name
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.option_readers import jobs as read_jobs
from xfcost.ledger.option_readers import token_numbers
from xfcost.ledger.quantization import UNQUANTISED
from xfcost.ledger.read_numbers import whole_number
from xfcost.questions.find.result import QUANTITIES, FindResult, Question, front_names, quantity_name
from xfcost.questions.find.search import (
    MOST_CONFIGURATIONS,
    FindProgress,
    Mapper,
    Varied,
    find_in_gallery,
    find_in_ranges,
    presets_of,
)
from xfcost.questions.find.selection import FindPart
from xfcost.questions.find.variables import PRESET, RUN_KEYS, Variable, read_variables
from xfcost.spec.run import with_defaults

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MOST_TOP: Final = 100_000


class FindOptions(RunOptions, SettingsOption, BudgetOptions, SearchOptions, SchedulerOption, total=False):
    """The keywords of `find`."""


@takes(FindOptions)
def find(*specs: str, **options: Unpack[FindOptions]) -> FindResult:
    """The models that fit budgets, sorted, with the front among them, and why the others don't.

    >>> import xfcost
    >>> found = xfcost.find(size=512, max_macs="25G", family="swin")
    >>> found.rows[0].name, found.rows[0].figures["params"]
    ('swin-t', 28288354)

    Args:
        *specs: presets, published models, patterns of both (`swin-*`), paths, or torch modules by name; all presets by
            default. With `vary`, one spec.
        **options: budgets, the search, and N, size, batch, dtype, attention, mode and so on, as for `analyze`; `on`
            leaves out what does not fit in the memory of the devices.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    return answer(specs, options)


def answer(
    specs: Sequence[str | os.PathLike[str]],
    options: Mapping[str, Any],
    progress: FindProgress = FindProgress(),  # noqa: B008 - immutable
) -> FindResult:
    """The answer over the gallery, or, where keys are varied, over one spec; `options` are those of `find`.

    Raises:
        XfcostError: bad input.
    """
    own = {**SearchOptions.__annotations__, **SchedulerOption.__annotations__}
    given = {name: one.__metadata__[0].default for name, one in own.items()} | dict(options)
    sort, descending = quantity_name("--sort", given["sort"]), given["descending"]
    question = Question(
        budgets=taken_budgets(given),
        sort=sort,
        descending=QUANTITIES[sort].descending if descending is None else descending,
        top=whole_number("--top", given["top"], least=1, most=_MOST_TOP, example="50"),
        front=front_names(given["front"]),
    )
    refuse("find", given)
    of_systems = SettingsOption.__annotations__
    run = make_run(**{name: value for name, value in given.items() if name not in {**own, **of_systems}})
    run = run._replace(cache_format=UNQUANTISED)
    how = AccountOptions(orders=False, progress=progress.said)
    settings, family = settings_texts(given.get("settings")), given["family"] or ()
    families = [family] if isinstance(family, str) else list(family)
    names = [spec_name(spec) for spec in specs]
    scheduler = given["scheduler"]
    jobs = read_jobs(given["jobs"], scheduler if given["vary"] else None)
    if not given["vary"]:
        refuse("find without --vary", given | {"jobs": jobs if jobs > 1 else None})
        chosen = presets_of(names, families)
        systems = open_systems(chosen, given | {"on": run.on}, progress.said, counted=True)
        for one in systems:
            check_options(one, run, modes=COUNTED_MODES)
            one.start([run], how)
        kinds = [one.kind(run) for one in systems]
        return find_in_gallery(dict(zip(chosen, systems, strict=True)), kinds, run, question)
    variables = tuple(map(_read_values, read_variables(given["vary"])))
    keys = [variable.key for variable in variables]
    names = presets_of(names, families) if names or families else []
    if PRESET in keys:
        raise UsageError(f"--vary {PRESET}: name the models instead, as in xfcost find gpt2 qwen3-8b --vary N=4k,32k")
    if not names or (len(names) > 1 and not set(keys) <= set(RUN_KEYS)):
        raise UsageError(
            "--vary: expected one spec whose keys to vary, as in xfcost find swin-t --vary …; several models can vary "
            "only N and batch"
        )
    for key in set(keys) & set(RUN_KEYS):
        refuse(f"find --vary {key}", given)
    tokens = next((variable.values for variable in variables if variable.key == "N"), ())
    runs = [run._replace(tokens=(one,)) for one in tokens] or [run]

    @cache
    def first(name: str) -> System:
        """With its own batch: a module is counted once for all N."""
        (system,) = open_systems([name], given | {"settings": settings, "on": run.on}, progress.said, counted=True)
        return system

    @cache
    def opened(name: str, batch: int) -> System:
        system = first(name).with_samples(batch)
        check_options(system, run, modes=COUNTED_MODES)
        system.start(runs, how)
        return system

    limit = given["limit"]
    if limit is not None:
        limit = whole_number("--limit", limit, least=1, most=MOST_CONFIGURATIONS, example="1M")
    run = with_defaults(run, [first(name).kind(run) for name in names])
    if len(names) > 1:
        variables = (Variable(PRESET, tuple(names)), *variables)
    varied = Varied(tuple(names), variables, opened)
    with _mapper(jobs, scheduler) as mapper:
        return find_in_ranges(varied, run, question, limit, mapper, progress)


def _read_values(variable: Variable) -> Variable:
    """The variable, of N and batch with whole numbers.

    Raises:
        UsageError: a value is none.
    """
    if variable.key == "N":
        tokens = [token_numbers("--vary N", value) for value in variable.values]
        if several := next((one for one in tokens if len(one) > 1), None):
            raise UsageError(f"--vary N={shown(several)}: expected one number of tokens, as in --vary N=4k,32k")
        return Variable("N", tuple(dict.fromkeys(one[0] for one in tokens)))
    if variable.key == "batch":
        return Variable("batch", tuple(dict.fromkeys(int(read_option("batch", one)) for one in variable.values)))
    return variable


@contextmanager
def _mapper(jobs: int, scheduler: str | None) -> Iterator[Mapper]:
    if scheduler is None and jobs == 1:
        yield map
        return
    from joblib import Parallel, delayed, parallel_config

    def parallel(work: Callable[[Sequence[int]], FindPart], chunks: Iterable[Sequence[int]]) -> Iterable[FindPart]:
        found: Iterable[FindPart] = Parallel(return_as="generator")(delayed(_called)(work, one) for one in chunks)
        return found

    if scheduler is None:
        with parallel_config(n_jobs=jobs):
            yield parallel
    else:
        from xfcost.api.measuring.cluster import connected

        with connected(scheduler) as client, parallel_config("dask", client=client):
            yield parallel


def _called(work: Callable[[Sequence[int]], FindPart], chunk: Sequence[int]) -> FindPart:
    return work(chunk)
