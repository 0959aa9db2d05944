"""Fetches a config.json, and the headers of weights, from the Hugging Face Hub by huggingface_hub.

Its cache, token, offline mode and HF_ENDPOINT are used. No connection is opened where fetching was not allowed; what
the cache on the disk has is read all the same. Code of a repository is never run.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from xfcost.importing.checkpoints import INDEX, StoredTensor
from xfcost.ledger.calibration import folder
from xfcost.ledger.errors import NotFetchedError, UsageError, printable, shown
from xfcost.ledger.files import Say, write_whole
from xfcost.spec.hub import HubName
from xfcost.spec.project import TABLE, nearest_project, project_table
from xfcost.spec.targets import CONFIG

T = TypeVar("T")

# Until an answer is complete, with what huggingface_hub tries again; it waits 10 s for the first byte of an answer.
MOST_SECONDS: Final = 60.0
_FILE: Final = "config.json"
_INSTALL: Final = "pip install 'xfcost[hub]'"
_VARIABLE: Final = "XFCOST_FETCH"
_LOG_IN: Final = "`hf auth login`, or HF_TOKEN"


class StoredHeader(NamedTuple):
    """A tensor as the header of its file has it."""

    dtype: str
    """As in safetensors: `BF16`."""
    shape: tuple[int, ...]
    bytes: int


def config_file(model: HubName, *, fetch: bool | None, say: Say | None) -> Path:
    """The config.json of a model, in huggingface_hub's cache.

    Args:
        model: its name.
        fetch: may a connection be opened? None: as the environment, or the nearest pyproject.toml, says.
        say: gets a line before one is opened.

    Raises:
        NotFetchedError: the cache does not have it, and it may not be fetched.
        UsageError: it can't be fetched.
    """
    allowed = _may_fetch() if fetch is None else fetch
    try:
        from huggingface_hub import constants, try_to_load_from_cache

        cached = try_to_load_from_cache(model.repo, _FILE, revision=model.revision)
    except ModuleNotFoundError:
        if allowed:
            raise UsageError(f"{model.text}: huggingface_hub, which fetches it, is missing: {_INSTALL}") from None
        raise _not_fetched(model, f" (after {_INSTALL})") from None
    except ValueError as error:  # of a name that can't be one
        raise UsageError(_meaning(model, error)) from error
    of_commit = model.revision is not None and re.fullmatch(r"[0-9a-f]{40}", model.revision)
    if isinstance(cached, str) and (not allowed or constants.HF_HUB_OFFLINE or of_commit):
        return Path(cached)
    if not allowed:
        raise _not_fetched(model)
    if constants.HF_HUB_OFFLINE:
        raise UsageError(f"{model.text}: not in the cache of huggingface_hub, and HF_HUB_OFFLINE is set; unset it")
    if say is not None:
        say(f"fetching {_FILE} of {model.repo} from {constants.ENDPOINT} …")
    try:
        return _answer(model, lambda: _downloaded(model))
    except UsageError as error:
        if isinstance(cached, str):
            raise UsageError(f"{error}; --no-fetch answers from the cache on the disk") from error
        raise


def _downloaded(model: HubName) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    # asked once: the download asks again and again, and waits until a limit of requests ends
    found = get_hf_file_metadata(hf_hub_url(model.repo, _FILE, revision=model.revision))
    if (found.size or 0) > CONFIG.most_bytes:
        raise UsageError(f"{model.text}: its {_FILE} has {found.size:,} bytes; {CONFIG.large}")
    return Path(hf_hub_download(model.repo, _FILE, revision=model.revision))


def tensors_of(model: HubName, *, fetch: bool | None = None, say: Say | None = None) -> tuple[StoredTensor, ...]:
    """The tensors of a model at a commit, by the headers of its files; () without safetensors, and where none are here.

    What was fetched once is kept in the settings folder, and read there the next time.

    Args:
        model: its name, with the commit as its revision.
        fetch: may a connection be opened, as for `config_file`?
        say: gets a line before one is opened.

    Raises:
        UsageError: they can't be fetched.
    """
    from huggingface_hub.constants import HF_HUB_OFFLINE

    kept = folder() / "headers" / f"{model.repo.replace('/', '--')}@{model.revision}.json"
    found: dict[str, dict[str, StoredHeader]] | None = None
    with suppress(OSError, msgspec.DecodeError):  # there is none, or another program wrote it
        found = msgspec.json.decode(kept.read_bytes(), type=dict[str, dict[str, StoredHeader]])
    if found is None and not HF_HUB_OFFLINE and (_may_fetch() if fetch is None else fetch):
        if say is not None:
            say(f"fetching the headers of {model.repo} …")
        found = headers(model)
        with suppress(OSError):  # then it is fetched again the next time
            write_whole(kept, msgspec.json.encode(found))
    stored = ((file, name, one) for file, of_file in (found or {}).items() for name, one in of_file.items())
    return tuple(StoredTensor(name, one.dtype, one.shape, one.bytes, file) for file, name, one in stored)


def headers(model: HubName) -> dict[str, dict[str, StoredHeader]]:
    """File -> tensor -> what the header says of it: of `model.safetensors`, or of all shards of an index; {} without.

    Nothing of the weights is fetched but the first 100 kB of each file, and its header where that is longer.

    Raises:
        UsageError: they can't be fetched.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError

    def read() -> dict[str, dict[str, StoredHeader]]:
        try:
            found = HfApi().get_safetensors_metadata(model.repo, revision=model.revision)
        except NotASafetensorsRepoError:
            return {}
        return {
            file: {
                name: StoredHeader(one.dtype, tuple(one.shape), one.data_offsets[1] - one.data_offsets[0])
                for name, one in stored.tensors.items()
            }
            for file, stored in sorted(found.files_metadata.items())
        }

    return _answer(model, read)


def _may_fetch() -> bool:
    """What the environment says, and where it says nothing the nearest pyproject.toml.

    Raises:
        XfcostError: one of them says what can't be.
    """
    if variable := os.environ.get(_VARIABLE):
        if variable not in ("0", "1"):
            raise UsageError(f"{_VARIABLE}={shown(variable)}: expected 1, which allows to fetch, or 0")
        return variable == "1"
    file = nearest_project(Path.cwd())
    found = False if file is None else (project_table(file) or {}).get("fetch", False)
    if not isinstance(found, bool):
        name = shown(os.path.relpath(str(file)), 200)
        raise UsageError(f"{name}: [{TABLE}]: fetch: expected true or false, got {shown(found)}")
    return found


def _not_fetched(model: HubName, after: str = "") -> NotFetchedError:
    """What would be fetched, and how: the command line adds the whole command."""
    bare = not model.text.startswith(("hf:", "https:"))
    where = "no such file or model of the list" if bare else "not in the cache of huggingface_hub"
    return NotFetchedError(
        f"{model.text}: {where}{model.near} With --fetch (fetch=True, {_VARIABLE}=1) its config.json and the index and "
        f"headers of its weights, kilobytes and never weights, are fetched from the Hub{after}"
    )


def _answer(model: HubName, ask: Callable[[], T]) -> T:
    """What `ask` returns, in a thread that is left alone after `MOST_SECONDS`.

    Raises:
        UsageError: it raised something, or does not end.
    """
    from huggingface_hub.constants import ENDPOINT

    found: list[T] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            with _quiet():
                found.append(ask())
        except Exception as error:  # noqa: BLE001 - explained in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(MOST_SECONDS)
    if found:
        return found[0]
    if raised:
        raise UsageError(_meaning(model, raised[0])) from raised[0]
    raise UsageError(f"{model.text}: {ENDPOINT} sent no complete answer in {MOST_SECONDS:g} s; run it again")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that huggingface_hub logs of what it tries again: the message has its last error."""
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    before = get_verbosity()
    set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        set_verbosity(before)


def _missing(error: BaseException) -> str:
    """What a model lacks: its config, or a shard of its weights."""
    asked = str(getattr(getattr(error, "response", None), "url", ""))
    file = printable(unquote(urlsplit(asked).path.rpartition("/")[2]), 120)
    if file and file != _FILE:
        return f"has no {file}, which {INDEX} names"
    return f"has no {_FILE}, and no other description is read"


def _meaning(model: HubName, error: BaseException) -> str:
    """What an error of huggingface_hub, or of the network below it, means, and how to mend it, in one line.

    Kinds are known by their names: which library of HTTP is below differs from release to release.
    """
    from huggingface_hub.constants import ENDPOINT

    if isinstance(error, UsageError):
        return str(error)
    if type(error).__name__ == "LocalEntryNotFoundError" and error.__cause__ is not None:
        error = error.__cause__
    response, page = getattr(error, "response", None), f"{ENDPOINT}/{model.repo}"
    status, seconds = getattr(response, "status_code", None), getattr(response, "headers", {}).get("Retry-After", "")
    when = f"in {seconds} s" if seconds.isdecimal() else "later"
    late = f"{ENDPOINT} did not answer in time; run it again (HF_HUB_ETAG_TIMEOUT=30 waits longer)"
    away = f"{ENDPOINT} can't be reached; check the network, HTTPS_PROXY and HF_ENDPOINT"
    cut = f"{ENDPOINT} broke off the download; run it again"
    meanings = {
        "HFValidationError": "is no name of a model on the Hub; expected org/name",
        "GatedRepoError": f"is gated; accept its terms at {page}, and log in: {_LOG_IN}",
        "RepositoryNotFoundError": f"{ENDPOINT} has no such model{model.near} If it is private, log in: {_LOG_IN}",
        "RevisionNotFoundError": f"has no revision {shown(model.revision)}; {page} lists its branches and tags",
        "EntryNotFoundError": f"{_missing(error)}; see {page}/tree/{model.revision or 'main'}",
        401: f"the Hub refuses the token; log in again: {_LOG_IN}",
        403: f"may not be read with this token; see {page}",
        429: f"{ENDPOINT} limits the rate of requests; run it again {when}, or log in for more: {_LOG_IN}",
        "TimeoutException": late, "Timeout": late, "ConnectError": away, "ConnectionError": away,
        "RemoteProtocolError": cut, "ChunkedEncodingError": cut,
    }  # fmt: skip
    kinds = {status, *(kind.__name__ for kind in type(error).__mro__)}
    text = next((text for kind, text in meanings.items() if kind in kinds), None)
    if text is None and "Consistency check" in str(error):  # the length is not the one that was announced
        text = cut
    if text is None and status is not None:
        text = f"{ENDPOINT} answers with status {status}; run it again later"
    if text is None:
        told = printable(" ".join(str(error).split()), 200)
        text = f"can't be fetched from {ENDPOINT}: {type(error).__name__}: {told}"
    return f"{model.text}: {text}"
